"""The page of a comparison: a press against others, cell by cell."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from leaderboards.aggregate.arguments import Arguments, argument_rows
from leaderboards.aggregate.duels import COMPARED, Contest, Duel
from leaderboards.aggregate.lead import CARRIES_OVER, is_teaching
from leaderboards.aggregate.lost_answers import DEFINITION as LOST
from leaderboards.aggregate.pooled import OF_AREAS, Pooled, shared_clauses
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.boards.area import BEATS_DEFINITION
from leaderboards.boards.declaration import TableCell, TableRow
from leaderboards.downloads.sheets import Sheet
from leaderboards.pages.definitions import STATISTICS
from leaderboards.pages.method import RunEntry, provenance_of
from leaderboards.pages.results import tasks_by_count
from leaderboards.rendering.templating import Listing, render
from leaderboards.studies.declaration import StudySection
from leaderboards.studies.parts import examples_page
from leaderboards.terminal.verdicts import few_contexts, mastered, summary_line, verdicts_in_words
from policies.declaration.levels import Level, kind_title, names_of

NOT_COMPLETE = "not complete"
NO_SUCH = "one of the two has no such value"
# The definitions of the page on method that stand on this one too.
DEFINED = ("Verdict, of a cell", "Smallest difference seen", "Means of subsets", "Adapted")


def build_comparison(
    model: str,
    duels: Sequence[Duel],
    missing: Sequence[str] = (),
    sheets: Sequence[Sheet] = (),
    pooled: Sequence[Pooled] = (),
    presses: Sequence[Arguments] = (),
    run: RunEntry | None = None,
    contexts: str = "",
    beside: str = "",
    unmastered: Mapping[str, str] = MappingProxyType({}),
    warnings: Sequence[str] = (),
    next_step: str = "",
    lost: StudySection | None = None,
) -> str:
    """Returns the page as text; the same input gives the same bytes. ``missing``: cells without a verdict, and why, a
    line each. ``sheets``: tables that lie in ``data`` beside it. ``pooled``: what it begins with. ``run``: what made
    the page, of so many ``contexts``. ``beside``: the folder of a run to look further at. ``unmastered``: why the model
    cannot do a task, which has no verdict. ``next_step``: the command that makes pages of its run.
    ``lost``: what became of the answers that the policy has lost."""
    others = dict.fromkeys(duel.other for duel in duels)
    shared, own = shared_clauses(pooled)
    arguments = Listing(
        "Arguments that the presses ran with", ("policy", "arguments", "on the tasks"), tuple(argument_rows(presses))
    )
    return render(
        "comparison.html.j2",
        model=model,
        teaching=CARRIES_OVER if is_teaching(model) else "",
        policy=duels[0].policy,
        sections=[
            _section(number, [duel for duel in duels if duel.other == other], unmastered)
            for number, other in enumerate(others, start=1)
        ],
        pooled=list(zip(pooled, own, strict=True)),
        of_all="; ".join(shared),
        presses=arguments,
        adapted={one.policy for one in presses if one.is_adapted},
        examples={task: examples_page(task, 1) for task in dict.fromkeys(duel.task for duel in duels)},
        next_step=next_step,
        lost=lost,
        definitions=[BEATS_DEFINITION, LOST, *(one for one in STATISTICS.definitions if one.name in DEFINED)],
        missing=missing,
        unmastered=unmastered,
        warnings=[warning.removeprefix("warning: ") for warning in warnings],
        sheets=sheets,
        run=run,
        provenance=provenance_of([run.content]) if run else (),
        contexts=contexts,
        beside=beside,
        on_areas=OF_AREAS if pooled else "",
        in_words=verdicts_in_words(pooled, presses),
    )


def contexts_text(contexts: Mapping[str, int]) -> str:
    """Writes how many contexts each task has, such as "12 of each task" or "12 of base, hops; 24 of arithmetic"."""
    tasks = tasks_by_count(contexts)
    if len(tasks) == 1 < len(contexts):
        return f"{next(iter(tasks))} of each task"
    return "; ".join(f"{count} of {', '.join(names)}" for count, names in tasks.items())


def _section(number: int, duels: Sequence[Duel], unmastered: Mapping[str, str]) -> dict[str, Any]:
    judged = mastered(duels, unmastered)
    levels = sorted({duel.level for duel in duels})
    measures = [name for name in COMPARED if any(name in duel.contests for duel in duels)]
    family = max(duel.family for duel in duels)
    return {
        "identifier": f"section-{number}",
        "other": duels[0].other,
        "summary": summary_line(judged),
        "family": f"each task corrected over its {family} levels" if family > 1 else "nothing to correct over",
        "few": few_contexts(min((duel.contexts for duel in judged), default=FEW_CONTEXTS)),
        "level_title": kind_title(levels),
        "columns": list(names_of(levels).values()),
        "tables": [_grid(duels, levels, one, unmastered) for one in measures],
    }


def _grid(
    duels: Sequence[Duel], levels: Sequence[Level], measure: str, unmastered: Mapping[str, str]
) -> dict[str, Any]:
    """Lays out a measure over task and level, and lists why cells are blank, whose title is nowhere on a phone."""
    tasks = dict.fromkeys(duel.task for duel in duels if measure in duel.contests)
    by_cell = {(duel.task, duel.level): duel for duel in duels}

    def cell(task: str, level: Level) -> TableCell:
        duel = by_cell.get((task, level))
        if duel is None or task in unmastered:
            return TableCell.blank(unmastered.get(task, NOT_COMPLETE))
        return _cell(duel.contests[measure]) if measure in duel.contests else TableCell.blank(NO_SUCH)

    lines = [TableRow(task, tuple(cell(task, level) for level in levels)) for task in tasks]
    blank = [cell for line in lines for cell in line.cells if cell.sort is None]
    reasons = dict.fromkeys(f"{one.dash}: {one.reason}" for one in blank)
    title, better = COMPARED[measure].title, COMPARED[measure].better
    title = title[0].lower() + title[1:]  # within a sentence
    return {"name": measure, "title": title, "better": better, "lines": lines, "reasons": list(reasons)}


def _cell(contest: Contest) -> TableCell:
    text, _, interval = contest.difference.text.partition(" ")
    sides = "{:.0f} against {:.0f}".format(*contest.sides)
    detail = f"{sides}\n{interval or f'no interval, n = {contest.contexts}'}"
    return TableCell(text, detail, contest.difference.mean, tone=contest.verdict)
