"""The page of a comparison: a press against others, cell by cell, and how they fail differently."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.failures import HOW, Contrast
from leaderboards.aggregate.paired import Difference, Duel, Verdict
from leaderboards.boards.cells import Cell, Line
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import render
from leaderboards.terminal.verdicts import summary_line, written_p
from policies.declaration.levels import Level

NOT_COMPLETE = "not complete"
# The columns of the table of every cell.
LISTED: Mapping[str, Callable[[Duel], str]] = {
    "task": lambda duel: duel.task,
    "level": lambda duel: duel.level.where,
    "questions": lambda duel: str(duel.questions),
    "contexts": lambda duel: str(duel.contexts),
    "F1": lambda duel: duel.f1.written(),
    "hallucination rate": lambda duel: duel.hallucination.written(100),
    "only this one right": lambda duel: str(duel.only_one),
    "only the other right": lambda duel: str(duel.only_other),
    "p": lambda duel: written_p(duel.p),
    "verdict": lambda duel: duel.verdict,
    "only this one hallucinates": lambda duel: str(duel.only_one_hallucinates),
    "only the other hallucinates": lambda duel: str(duel.only_other_hallucinates),
    "p of hallucinations": lambda duel: written_p(duel.hallucination_p),
    "verdict on hallucinations": lambda duel: duel.hallucination_verdict,
}


@dataclass(frozen=True)
class Grid:
    """A measure over task and level."""

    name: str
    title: str
    unit: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Section:
    """All about one opponent."""

    identifier: str
    other: str
    summary: str
    level_title: str
    columns: tuple[str, ...]
    tables: tuple[Grid, ...]
    how: tuple[tuple[str, ...], ...]
    where: tuple[tuple[str, ...], ...]
    listing: tuple[tuple[str, ...], ...]


def build_comparison(
    model: str,
    duels: Sequence[Duel],
    contrasts: Mapping[str, Sequence[Contrast]],
    missing: Sequence[str] = (),
    sheets: Sequence[Sheet] = (),
) -> str:
    """The page as text; the same input gives the same bytes. ``contrasts``: by opponent. ``missing``: cells without a
    verdict, and why, a line each. ``sheets``: tables that lie in ``data`` beside it."""
    others = dict.fromkeys(duel.other for duel in duels)
    return render(
        "comparison.html.j2",
        model=model,
        policy=duels[0].policy,
        sections=[
            _section(number, [duel for duel in duels if duel.other == other], contrasts.get(other, ()))
            for number, other in enumerate(others, start=1)
        ],
        listing_columns=tuple(LISTED),
        missing=missing,
        sheets=sheets,
    )


def _section(number: int, duels: Sequence[Duel], contrasts: Sequence[Contrast]) -> Section:
    levels = sorted({duel.level for duel in duels})
    return Section(
        identifier=f"section-{number}",
        other=duels[0].other,
        summary=summary_line(duels),
        level_title=levels[-1].declared.title,
        columns=tuple(map(str, levels)),
        tables=(
            Grid("f1", "F1", "percent", _lines(duels, levels, lambda duel: _cell(duel.f1, 1, duel.verdict))),
            Grid(
                "hallucination",
                "Hallucination rate",
                "percent",
                _lines(duels, levels, lambda duel: _cell(duel.hallucination, 100, duel.hallucination_verdict)),
            ),
        ),
        how=tuple(_contrasted(contrast) for contrast in contrasts if contrast.part == HOW),
        where=tuple(_contrasted(contrast) for contrast in contrasts if contrast.part != HOW),
        listing=tuple(tuple(text(duel) for text in LISTED.values()) for duel in duels),
    )


def _contrasted(contrast: Contrast) -> tuple[str, ...]:
    """Returns the row of a contrast as texts, rates in percent."""
    rates = (f"{100 * rate:.0f}" for rate in (contrast.rate, contrast.other_rate))
    return (contrast.name, str(contrast.answers), *rates, contrast.difference.written(100))


def _lines(duels: Sequence[Duel], levels: Sequence[Level], cell: Callable[[Duel], Cell]) -> tuple[Line, ...]:
    cells = {(duel.task, duel.level): cell(duel) for duel in duels}
    blank = Cell.blank(NOT_COMPLETE)
    return tuple(
        Line(task, tuple(cells.get((task, level), blank) for level in levels))
        for task in dict.fromkeys(duel.task for duel in duels)
    )


def _cell(difference: Difference, factor: float, verdict: Verdict) -> Cell:
    text, _, interval = difference.written(factor).partition(" ")
    return Cell(text, interval, difference.mean, tone=verdict)
