"""What a page says about one task, or the mean over tasks, in one mode."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaderboards.figures import curve_figure
from leaderboards.measures import CURVES, TABLES, Measure
from leaderboards.row import ALL_TASKS, SummaryRow
from leaderboards.style import LineStyle, line_styles
from leaderboards.tables import Table, listing, measure_table

# Of 4, 8 and 12 contexts, intervals of 95 % hold the truth in 82, 88 and 91 % of simulated runs.
ENOUGH_CONTEXTS = 12


@dataclass(frozen=True)
class Curve:
    measure: Measure
    drawing: Markup


@dataclass(frozen=True)
class Section:
    """Its curves, its tables, and every measure."""

    identifier: str
    title: str
    note: str
    styles: tuple[LineStyle, ...]
    curves: tuple[Curve, ...]
    tables: tuple[Table, ...]
    listing: list[tuple[str, ...]]


def sections_of(rows: Sequence[SummaryRow], task: str) -> list[Section]:
    """One for each mode. ``rows``: of all tasks, since lines and heat are the same on all pages of a run."""
    modes = distinct(row.mode for row in rows if row.task == task)
    highest = {
        measure.name: max((value for row in rows if (value := measure.value(row)) is not None), default=0.0)
        for measure in TABLES
    }
    return [
        _section(rows, task, mode, f"section-{number}", title_of(rows, task, mode), highest)
        for number, mode in enumerate(modes, start=1)
    ]


def title_of(rows: Sequence[SummaryRow], task: str, mode: str) -> str:
    name = "All tasks" if task == ALL_TASKS else task
    return f"{name}, {mode}" if len({row.mode for row in rows}) > 1 else name


def note_of(rows: Sequence[SummaryRow], task: str, mode: str) -> str:
    """How much there is of a task, and what a reader has to know of it."""
    most = max((row for row in rows if (row.task, row.mode) == (task, mode)), key=lambda row: row.n)
    note = f"{_counted(most.n, 'question')} about {_counted(most.contexts, 'context')} in each cell"
    if most.chance is not None:
        note += f"; who guesses without the text reaches an F1 of {most.chance:.1f}"
    if task == ALL_TASKS:
        return f"Unweighted mean over the tasks; {note}"
    if most.contexts < ENOUGH_CONTEXTS:
        note += "; with so few contexts, intervals are too narrow and verdicts too sure"
    return note


def _section(
    rows: Sequence[SummaryRow], task: str, mode: str, identifier: str, title: str, highest: Mapping[str, float]
) -> Section:
    own = [row for row in rows if row.task == task and row.mode == mode]
    styles = line_styles(rows)
    return Section(
        identifier=identifier,
        title=title,
        note=note_of(rows, task, mode),
        # As in the tables: methods, then controls.
        styles=tuple(sorted((styles[policy] for policy in distinct(row.policy for row in own)), key=_is_control)),
        curves=tuple(Curve(measure, Markup(curve_figure(rows, task, mode, measure))) for measure in CURVES),
        tables=tuple(measure_table(own, measure, styles, highest[measure.name]) for measure in TABLES),
        listing=listing(own),
    )


def distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_control(style: LineStyle) -> bool:
    return style.control
