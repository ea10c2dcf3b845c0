"""The page of a comparison: a press against others, cell by cell, and how they fail differently."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from leaderboards.aggregate.failures import HOW, Contrast
from leaderboards.aggregate.paired import Difference, Duel
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import render
from leaderboards.terminal.verdicts import summary_line, written_p
from policies.declaration.levels import Level

SIGNS = {"better": "▲", "worse": "▼", "tied": ""}
LISTING = (
    *("task", "level", "questions", "contexts", "F1", "hallucination rate", "only this one right"),
    *("only the other right", "p", "verdict"),
    *("only this one hallucinates", "only the other hallucinates", "p of hallucinations", "verdict on hallucinations"),
)


@dataclass(frozen=True)
class Cell:
    """``tone``: better, worse or tied."""

    text: str
    interval: str
    tone: Literal["better", "worse", "tied"]
    sign: str


@dataclass(frozen=True)
class Line:
    task: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Grid:
    """A measure over task and what was asked."""

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
        listing_columns=LISTING,
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
            Grid("f1", "F1", "percent", _lines(duels, levels, hallucination=False)),
            Grid("hallucination", "Hallucination rate", "percent", _lines(duels, levels, hallucination=True)),
        ),
        how=tuple(_contrasted(contrast) for contrast in contrasts if contrast.part == HOW),
        where=tuple(_contrasted(contrast) for contrast in contrasts if contrast.part != HOW),
        listing=tuple(_listed(duel) for duel in duels),
    )


def _contrasted(contrast: Contrast) -> tuple[str, ...]:
    """Returns the row of a contrast as texts, rates in percent."""
    rates = (f"{100 * rate:.0f}" for rate in (contrast.rate, contrast.other_rate))
    return (contrast.name, str(contrast.answers), *rates, contrast.difference.written(100))


def _lines(duels: Sequence[Duel], levels: Sequence[Level], hallucination: bool) -> tuple[Line, ...]:
    found = {(duel.task, duel.level): duel for duel in duels}
    tasks = dict.fromkeys(duel.task for duel in duels)
    cell = _hallucination if hallucination else _f1
    return tuple(
        Line(task, tuple(cell(duel) if (duel := found.get((task, level))) else None for level in levels))
        for task in tasks
    )


def _f1(duel: Duel) -> Cell:
    return _cell(duel.f1, 1, duel.verdict)


def _hallucination(duel: Duel) -> Cell:
    return _cell(duel.hallucination, 100, duel.hallucination_verdict)


def _cell(difference: Difference, factor: float, tone: Literal["better", "worse", "tied"]) -> Cell:
    text, _, interval = difference.written(factor).partition(" ")
    return Cell(text, interval, tone, SIGNS[tone])


def _listed(duel: Duel) -> tuple[str, ...]:
    return (
        duel.task,
        duel.level.where,
        str(duel.questions),
        str(duel.contexts),
        duel.f1.written(),
        duel.hallucination.written(100),
        str(duel.only_one),
        str(duel.only_other),
        written_p(duel.p),
        duel.verdict,
        str(duel.only_one_hallucinates),
        str(duel.only_other_hallucinates),
        written_p(duel.hallucination_p),
        duel.hallucination_verdict,
    )
