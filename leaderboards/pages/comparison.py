"""The page of a comparison: a press against others, cell by cell."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from leaderboards.aggregate.arguments import Arguments, argument_rows
from leaderboards.aggregate.duels import COMPARED, Contest, Duel, Verdict
from leaderboards.aggregate.leading_measures import CARRIES_OVER, is_teaching
from leaderboards.aggregate.lost_answers import DEFINITION as LOST
from leaderboards.aggregate.outcomes import OpponentVerdict, conditions, held_sentence, list_areas
from leaderboards.aggregate.pooled import OF_AREAS, Pooled, shared_clauses, verdict_in_words
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.boards.area_under_curve import BEATS_DEFINITION
from leaderboards.boards.declaration import TableCell, TableRow
from leaderboards.downloads.sheets import Sheet
from leaderboards.pages.definitions import STATISTICS
from leaderboards.pages.method import RunEntry, provenance_facts
from leaderboards.pages.results import tasks_by_count
from leaderboards.rendering.templating import ALONE, Listing, Neighbours, render
from leaderboards.statistics.paired_difference import MeanDifference
from leaderboards.statistics.text import p_text
from leaderboards.studies.declaration import StudySection
from leaderboards.studies.parts import examples_page
from leaderboards.terminal.placed import lines_by_verdict
from leaderboards.terminal.verdicts import (
    few_contexts,
    mastered,
    summary_line,
    verdicts_in_words,
    write_remarks,
)
from policies.declaration.levels import UNTREATED, Level, kind_title, name_levels

MOST_NAMED = 8  # opponents that have a sentence each
NOT_COMPLETE = "not complete"
NOTHING_TO_CORRECT = "a task has one level, so that there is nothing to correct"
NO_SUCH = "one of the two has no such value"
# The definitions of the page on method that stand on this one too.
DEFINED = (
    "Mean of tasks at a level",
    "Verdict, of a cell",
    "Smallest difference seen",
    "Means of subsets",
    "Adapted",
)

BESIDE = "Beside it"
BESIDE_TEXT = (
    "Other runs about the same questions: each policy against the full cache of its own run, and a "
    "run without such policies against the run that is compared with. Where that one differs as "
    "much as what is judged, the difference says nothing."
)


def build_comparison(
    model: str,
    duels: Sequence[Duel],
    missing: Sequence[str] = (),
    sheets: Sequence[Sheet] = (),
    outcomes: Sequence[OpponentVerdict] = (),
    presses: Sequence[Arguments] = (),
    run: RunEntry | None = None,
    contexts: str = "",
    beside: str = "",
    unmastered: Mapping[str, str] = MappingProxyType({}),
    warnings: Sequence[str] = (),
    next_step: str = "",
    earlier: Sequence[str] = (),
    lost: StudySection | None = None,
    more: Sequence[StudySection] = (),
    neighbours: Neighbours = ALONE,
) -> str:
    """Returns the page as text; the same input gives the same bytes. ``missing``: cells without a
    verdict, and why, a line each. ``sheets``: tables that lie in ``data`` beside it. ``outcomes``:
    what it begins with. ``run``: what made the page, of so many ``contexts``. ``beside``: the
    folder of a run to look further at. ``unmastered``: why the model cannot do a task, which has no
    verdict. ``next_step``: the command that makes pages of its run. ``earlier``: other runs whose
    answers are compared. ``lost``: what became of the answers that the policy has lost. ``more``:
    further sections behind it."""
    adapted = {press.policy for press in presses if press.is_adapted}
    duels_by_other: dict[str, list[Duel]] = {}
    examples: dict[str, str] = {}
    for duel in duels:
        duels_by_other.setdefault(duel.other, []).append(duel)
        examples[duel.task] = examples_page(duel.task, 1)
    sections = []
    for number, against in enumerate(duels_by_other.values(), start=1):
        sections.append(_section(number, against, unmastered))
    areas = list_areas(outcomes)
    shared, details = shared_clauses(areas)
    clauses = list(shared)
    for area, detail in zip(areas, details, strict=True):
        if detail:
            clauses.append(f"{area.other}: {detail}")
    of_statistics = []
    for definition in STATISTICS.definitions:
        if definition.name in DEFINED:
            of_statistics.append(definition)
    return render(
        "comparison.html.j2",
        neighbours=neighbours,
        model=model,
        teaching=CARRIES_OVER if is_teaching(model) else "",
        policy=duels[0].policy,
        sections=sections,
        means=_means(outcomes, adapted) if outcomes else None,
        held=held_sentence(outcomes),
        of_means=_sentence(conditions(outcomes)),
        areas=_areas(areas, adapted),
        of_areas=_sentence(clauses),
        presses=_arguments(presses),
        adapted=adapted,
        examples=examples,
        next_step=next_step,
        lost=lost,
        more=more,
        definitions=[BEATS_DEFINITION, LOST, *of_statistics],
        missing=missing,
        unmastered=unmastered,
        warnings=[warning.removeprefix("warning: ") for warning in warnings],
        sheets=sheets,
        run=run,
        provenance=provenance_facts([run.content]) if run else (),
        contexts=contexts,
        beside=beside,
        earlier=earlier,
        on_areas=OF_AREAS,
        in_words=_in_words(outcomes, presses),
        others=_others(list(duels_by_other)),
    )


def _others(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} others"


def _in_words(outcomes: Sequence[OpponentVerdict], presses: Sequence[Arguments]) -> list[str]:
    """Says the verdict against each opponent; where there are many, lists those of each verdict, and
    says of the compared press alone whether it is as in its paper: a row tells it of the others."""
    if len(outcomes) <= MOST_NAMED:
        return verdicts_in_words(outcomes, presses)
    compared = [press for press in presses if press.policy == outcomes[0].policy]
    return [*lines_by_verdict(outcomes), *write_remarks(outcomes, compared)]


def _arguments(presses: Sequence[Arguments]) -> Listing:
    columns = ("policy", "arguments", "on the tasks")
    rows = tuple(argument_rows(presses))
    return Listing("Arguments that the presses ran with", columns, rows)


def _sentence(clauses: Sequence[str]) -> str:
    """Joins clauses as one sentence without its full stop. A filter of templates would lower all
    other letters."""
    text = "; ".join(clauses)
    return text[:1].upper() + text[1:]


def contexts_text(contexts: Mapping[str, int]) -> str:
    """Writes how many contexts each task has, such as "12 of each task" or "12 of base, hops; 24 of
    arithmetic"."""
    tasks = tasks_by_count(contexts)
    if len(tasks) == 1 < len(contexts):
        (count,) = tasks
        return f"{count} of each task"
    return "; ".join(f"{count} of {', '.join(names)}" for count, names in tasks.items())


def _section(number: int, duels: Sequence[Duel], unmastered: Mapping[str, str]) -> dict[str, Any]:
    judged = mastered(duels, unmastered)
    levels = sorted({duel.level for duel in duels})
    tables = []
    for measure in COMPARED:
        if any(measure in duel.contests for duel in duels):
            tables.append(_grid(duels, levels, measure, unmastered))
    corrected = NOTHING_TO_CORRECT
    family = max(duel.family for duel in duels)
    if family > 1:
        corrected = f"the {family} levels of a task are corrected together"
    return {
        "identifier": f"section-{number}",
        "other": duels[0].other,
        "summary": summary_line(judged),
        "family": corrected,
        "few": _few(judged),
        "tables": tables,
    }


def _few(judged: Sequence[Duel]) -> str:
    return few_contexts(min((duel.contexts for duel in judged), default=FEW_CONTEXTS))


def _means(outcomes: Sequence[OpponentVerdict], adapted: Collection[str]) -> dict[str, Any]:
    """Lays out the mean of tasks: a row for each opponent, a column for each level."""
    rows: list[Pooled] = []
    for outcome in outcomes:
        rows += outcome.rows
    levels_shown: set[Level] = set()
    names: dict[str, None] = {}  # of the tasks, in the order of the rows
    for row in rows:
        levels_shown.add(row.level)
        names.update(dict.fromkeys(row.tasks))
    levels = sorted(levels_shown)
    lines = []
    for outcome in outcomes:
        by_level = {row.level: _pooled_cell(row) for row in outcome.rows}
        cells = tuple(by_level.get(level, TableCell.blank(NOT_COMPLETE)) for level in levels)
        opponent = _opponent(outcome.other, adapted)
        lines.append(TableRow(f"against {opponent}", cells))
    tasks = list(names)
    subject = tasks[0]
    if len(tasks) > 1:
        subject = f"mean of {', '.join(tasks)}"
    return {
        "name": "means",
        "heading": rows[0].title,
        "title": f"{subject}, percent: {rows[0].policy} minus the other",
        "level_title": kind_title(levels),
        "columns": list(name_levels(levels).values()),
        "of_rows": "",
        "lines": lines,
        "reasons": _blank_reasons(lines),
        "few": few_contexts(min(row.fewest for row in rows)),
    }


def _opponent(name: str, adapted: Collection[str]) -> str:
    if name in adapted:
        return f"{name}, adapted"
    return name


def _pooled_cell(row: Pooled) -> TableCell:
    return _difference_cell(row.difference, row.sides, row.contexts, row.verdict)


def _areas(areas: Sequence[Pooled], adapted: Collection[str]) -> Listing:
    """Lists the areas over all levels, a row for each opponent."""
    rows = []
    for area in areas:
        this, other = area.sides
        p = "" if area.p is None else p_text(area.p)
        name = _opponent(area.other, adapted)
        rows.append((name, f"{this:.0f}", f"{other:.0f}", area.difference.text, p, area.verdict))
    columns = ("against", "this", "other", "difference", "p", "verdict")
    return Listing("Area over all levels", columns, tuple(rows))


def _grid(
    duels: Sequence[Duel], levels: Sequence[Level], measure: str, unmastered: Mapping[str, str]
) -> dict[str, Any]:
    """Lays out a measure over task and level, and lists why cells are blank, whose title is nowhere
    on a phone."""
    by_cell: dict[tuple[str, Level], Duel] = {}
    tasks: dict[str, None] = {}
    for duel in duels:
        by_cell[duel.task, duel.level] = duel
        if measure in duel.contests:
            tasks[duel.task] = None
    lines = []
    for task in tasks:
        name = f"{task}, no verdicts" if task in unmastered else task
        cells = []
        for level in levels:
            cell = _grid_cell(by_cell.get((task, level)), measure)
            if task in unmastered:
                cell = replace(cell, tone="")
            cells.append(cell)
        lines.append(TableRow(name, tuple(cells)))
    title, better = COMPARED[measure].title, COMPARED[measure].better
    return {
        "name": measure,
        "heading": title[0].lower() + title[1:],  # within a sentence
        "title": f"percent, {better} is better: {duels[0].policy} minus {duels[0].other}",
        "level_title": kind_title(levels),
        "columns": list(name_levels(levels).values()),
        "of_rows": "task",
        "lines": lines,
        "reasons": _blank_reasons(lines),
        "few": _few(mastered(duels, unmastered)),
    }


def _grid_cell(duel: Duel | None, measure: str) -> TableCell:
    if duel is None:
        return TableCell.blank(NOT_COMPLETE)
    if measure not in duel.contests:
        return TableCell.blank(NO_SUCH)
    return _cell(duel.contests[measure])


def _blank_reasons(lines: Sequence[TableRow]) -> list[str]:
    reasons: dict[str, None] = {}
    for line in lines:
        for cell in line.cells:
            if cell.sort is None:
                reasons[f"{cell.dash}: {cell.reason}"] = None
    return list(reasons)


def _cell(contest: Contest) -> TableCell:
    return _difference_cell(contest.difference, contest.sides, contest.contexts, contest.verdict)


def _difference_cell(
    difference: MeanDifference, sides: tuple[float, float], contexts: int, verdict: Verdict
) -> TableCell:
    this, other = sides
    text, _, interval = difference.text.partition(" ")
    if not interval:
        interval = f"no interval, n = {contexts}"
    detail = f"{this:.0f} against {other:.0f}\n{interval}"
    return TableCell(text, detail, difference.mean, tone=verdict)


def beside_section(rows: Sequence[Pooled]) -> StudySection | None:
    """Makes the table of a comparison with what other runs lose; None where there is no other."""
    if not rows:
        return None
    texts = []
    for row in rows:
        first, second = row.sides
        heights = (f"{first:.0f}", f"{second:.0f}")
        level = "" if row.level == UNTREATED else row.level.where
        words = verdict_in_words(row)
        texts.append((row.policy, row.other, level, *heights, row.difference.text, words))
    columns = ("what", "against", "level", "this", "other", "difference", "verdict")
    listing = Listing(
        "mean of tasks in percent, and the difference in points", columns, tuple(texts)
    )
    return StudySection("beside", BESIDE, BESIDE_TEXT, listings=(listing,))
