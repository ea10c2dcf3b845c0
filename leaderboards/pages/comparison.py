"""The page of a comparison: a press against others, cell by cell, and how they fail differently."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.arguments import Arguments, argument_rows
from leaderboards.aggregate.comparison.duel import COMPARED, Compared, Contest, Duel
from leaderboards.aggregate.comparison.failures import HOW, Contrast
from leaderboards.aggregate.comparison.pooled import Pooled, note_on_areas
from leaderboards.aggregate.teaching import CARRIES_OVER, is_teaching
from leaderboards.boards.cells import TableCell, TableRow
from leaderboards.downloads.sheets import Sheet
from leaderboards.pages.definitions import STATISTICS
from leaderboards.pages.entries import provenance_of
from leaderboards.pages.method import RunEntry
from leaderboards.pages.results import examples_page
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.templating import render
from leaderboards.statistics.significance import p_text
from leaderboards.terminal.verdicts import few_contexts, mastered, summary_line, verdicts_in_words
from policies.declaration.levels import Level, kind_title, names_of

NOT_COMPLETE = "not complete"
NO_SUCH = "one of the two answers nothing"
# The definitions of the page on method that stand on this one too.
DEFINED = (
    *("Pooled difference", "Verdict, of a comparison", "Smallest difference seen", "Means of subsets"),
    *("Right against wrong", "Adapted"),
)
# The columns of the table of every cell: first those of the cell, then those of each measure behind its title.
OF_CELL: Mapping[str, Callable[[Duel], str]] = {
    "task": lambda duel: duel.task,
    "level": lambda duel: duel.level.where,
    "questions": lambda duel: str(duel.questions),
    "contexts": lambda duel: str(duel.contexts),
    "only this one right": lambda duel: str(duel.only_one),
    "only the other right": lambda duel: str(duel.only_other),
    "p of McNemar": lambda duel: p_text(duel.p_of_mcnemar),
}
OF_MEASURE: Mapping[str, Callable[[Contest], str]] = {
    "{}": lambda contest: contest.text,
    "p, {}": lambda contest: p_text(contest.p),
    "verdict on {}": lambda contest: contest.explanation,
}


@dataclass(frozen=True)
class RunBeside:
    """A run whose pages lie in a folder beside the page's own."""

    name: str  # of the folder
    contexts: str  # as :func:`contexts_text` writes them, of the tasks that are compared; empty of another setting


@dataclass(frozen=True)
class MeasureGrid:
    """A measure over task and level."""

    name: str
    title: str
    unit: str
    direction: str  # which end is better
    lines: tuple[TableRow, ...]

    @property
    def reasons(self) -> list[str]:
        """Says why cells are blank, each reason once: the title of a cell is nowhere on a phone."""
        return list(
            dict.fromkeys(
                f"{cell.dash}: {cell.reason}" for line in self.lines for cell in line.cells if cell.sort is None
            )
        )


@dataclass(frozen=True)
class OpponentSection:
    """A part of the page: all about one opponent."""

    identifier: str
    other: str
    summary: str
    family: str  # what the verdicts of its cells are corrected over
    few: str  # a warning of few contexts
    level_title: str
    columns: tuple[str, ...]
    tables: tuple[MeasureGrid, ...]
    how: Listing
    where: Listing
    cells: Listing  # every measure of every cell


def build_comparison(
    model: str,
    duels: Sequence[Duel],
    contrasts: Mapping[str, Sequence[Contrast]],
    missing: Sequence[str] = (),
    sheets: Sequence[Sheet] = (),
    pooled: Sequence[Pooled] = (),
    presses: Sequence[Arguments] = (),
    run: RunEntry | None = None,
    contexts: str = "",
    beside: RunBeside | None = None,
    unmastered: Mapping[str, str] | None = None,
    warnings: Sequence[str] = (),
    next_step: str = "",
) -> str:
    """Returns the page as text; the same input gives the same bytes. ``contrasts``: by opponent. ``missing``: cells
    without a verdict, and why, a line each. ``sheets``: tables that lie in ``data`` beside it. ``pooled``: what it
    begins with. ``presses``: the arguments that each policy ran with. ``run``: what made the page, of so many
    ``contexts``. ``beside``: a run to look further at. ``unmastered``: why the model cannot do a task, which has no
    verdict. ``warnings``: what a reader of the verdicts has to know. ``next_step``: the command that makes pages of its
    run."""
    reasons = unmastered or {}
    others = dict.fromkeys(duel.other for duel in duels)
    counts = Counter(clause for one in pooled for clause in one.clauses)
    shared = [clause for clause, count in counts.items() if count > len(pooled) / 2]
    return render(
        "comparison.html.j2",
        model=model,
        teaching=CARRIES_OVER if is_teaching(model) else "",
        policy=duels[0].policy,
        sections=[
            _section(number, [duel for duel in duels if duel.other == other], contrasts.get(other, ()), reasons)
            for number, other in enumerate(others, start=1)
        ],
        pooled=[(one, "; ".join(clause for clause in one.clauses if clause not in shared)) for one in pooled],
        of_all="; ".join(shared),
        presses=Listing(
            "Arguments that the presses ran with",
            ("policy", "arguments", "on the tasks"),
            tuple(argument_rows(presses)),
        ),
        adapted={one.policy for one in presses if one.is_adapted},
        examples={task: examples_page(task, 1) for task in dict.fromkeys(duel.task for duel in duels)},
        next_step=next_step,
        definitions=[one for one in STATISTICS.definitions if one.name in DEFINED],
        missing=missing,
        unmastered=reasons,
        warnings=[warning.removeprefix("warning: ") for warning in warnings],
        sheets=sheets,
        run=run,
        provenance=provenance_of([run.content]) if run else (),
        contexts=contexts,
        beside=beside,
        on_areas=note_on_areas(pooled),
        in_words=verdicts_in_words(pooled, presses),
    )


def contexts_text(contexts: Mapping[str, int]) -> str:
    """Writes how many contexts each task has, such as "12 of each task" or "12 of base, hops; 24 of arithmetic"."""
    tasks: dict[int, list[str]] = {}
    for task, count in contexts.items():
        tasks.setdefault(count, []).append(task)
    if len(tasks) == 1 < len(contexts):
        return f"{next(iter(tasks))} of each task"
    return "; ".join(f"{count} of {', '.join(names)}" for count, names in tasks.items())


def _section(
    number: int, duels: Sequence[Duel], contrasts: Sequence[Contrast], unmastered: Mapping[str, str]
) -> OpponentSection:
    judged = mastered(duels, unmastered)
    levels = sorted({duel.level for duel in duels})
    measures = [measure for name, measure in COMPARED.items() if any(name in duel.contests for duel in duels)]
    family = max(duel.family for duel in duels)
    sides = ("", "answers", duels[0].policy, duels[0].other, "difference")
    return OpponentSection(
        identifier=f"section-{number}",
        other=duels[0].other,
        summary=summary_line(judged),
        family=f"each task corrected over its {family} levels" if family > 1 else "nothing to correct over",
        few=next(iter(few_contexts(judged)), ""),
        level_title=kind_title(levels),
        columns=tuple(names_of(levels).values()),
        tables=tuple(
            MeasureGrid(
                *(measure.name, measure.title, measure.unit, measure.direction),
                _lines(duels, levels, measure, unmastered),
            )
            for measure in measures
        ),
        how=Listing(
            "How they answer, percent of all answers",
            sides,
            tuple(_contrasted(contrast) for contrast in contrasts if contrast.part == HOW),
        ),
        where=Listing(
            "Where they are not right (wrong or unanswered), percent of such questions; the largest difference first",
            sides,
            tuple(_contrasted(contrast) for contrast in contrasts if contrast.part != HOW),
        ),
        cells=Listing(
            "Every cell",
            (*OF_CELL, *(column.format(measure.title) for measure in measures for column in OF_MEASURE)),
            tuple(_cell_texts(duel, measures) for duel in judged),
        ),
    )


def _cell_texts(duel: Duel, measures: Sequence[Compared]) -> tuple[str, ...]:
    contests = [duel.contests.get(measure.name) for measure in measures]
    texts = [text(contest) if contest else "–" for contest in contests for text in OF_MEASURE.values()]
    return (*(text(duel) for text in OF_CELL.values()), *texts)


def _contrasted(contrast: Contrast) -> tuple[str, ...]:
    """Returns the row of a contrast as texts, rates in percent."""
    rates = (f"{100 * rate:.0f}" for rate in (contrast.rate, contrast.other_rate))
    alone = " (no interval from so few contexts)" if contrast.difference.low is None else ""
    return (contrast.name, str(contrast.answers), *rates, contrast.difference.text(100) + alone)


def _lines(
    duels: Sequence[Duel], levels: Sequence[Level], measure: Compared, unmastered: Mapping[str, str]
) -> tuple[TableRow, ...]:
    tasks = dict.fromkeys(duel.task for duel in duels if measure.name in duel.contests)
    met = {(duel.task, duel.level): duel for duel in duels}
    return tuple(
        TableRow(task, tuple(_of(met.get((task, level)), measure, unmastered) for level in levels)) for task in tasks
    )


def _of(duel: Duel | None, measure: Compared, unmastered: Mapping[str, str]) -> TableCell:
    if duel is None:
        return TableCell.blank(NOT_COMPLETE)
    if duel.task in unmastered:
        return TableCell.blank(unmastered[duel.task])
    return _cell(duel.contests[measure.name]) if measure.name in duel.contests else TableCell.blank(NO_SUCH)


def _cell(contest: Contest) -> TableCell:
    text, _, interval = contest.text.partition(" ")
    return TableCell(
        text,
        f"{contest.sides_text}\n{interval or f'no interval, n = {contest.contexts}'}",
        contest.difference.mean,
        tone=contest.verdict,
        reason=contest.explanation,
    )
