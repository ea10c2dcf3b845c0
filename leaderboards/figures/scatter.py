"""Draws the Global Eviction Ratio against rates of wrong answers: are answers made up where the evidence is evicted
everywhere?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leaderboards.aggregate.row import ALL_TASKS, GER, SummaryRow
from leaderboards.boards.correlation import Correlation, correlation
from leaderboards.metrics import Measure
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Frame
from leaderboards.rendering.marks import Dots
from leaderboards.rendering.plots import Plot, Spot, numbers
from leaderboards.rendering.style import LineStyle, line_styles
from leaderboards.statistics.resampling import Blank
from policies.declaration.levels import UNTREATED
from policies.declaration.names import CONTROLS, FULL

Pair = tuple[Measure, Measure]  # across and up

# The axes end where points do, rounded up to a fifth of the highest possible value; and then have this many steps.
STEPS = {1: 4, 2: 4, 3: 3, 4: 4, 5: 5}
NO_POINTS = "no policy has both"


@dataclass(frozen=True)
class Scatter:
    """A point for each policy and level."""

    plot: Plot
    correlation: Correlation | Blank  # of the methods; controls do not count, as the oracle is made to lose nothing


def scatter(
    rows: Sequence[SummaryRow],
    task: str,
    mode: str,
    measure: Measure,
    styles: Mapping[str, LineStyle] | None = None,
    place: str = "",
) -> Scatter | Blank:
    """Draws a measure of one task, or ``all``, in one mode over GER, by what the rows measured. Blank where nothing has
    both values."""
    both = (GER, measure)
    styles = styles or line_styles(rows)
    shown = [row for row in rows if (row.task, row.mode) == (task, mode)]
    known = [row for row in shown if all(one.value(row) is not None for one in both)]
    if not known:
        reasons = [row.reason for row in shown if row.reason]
        return Blank(reasons[0] if reasons else NO_POINTS)
    points: dict[LineStyle, list[SummaryRow]] = {}
    for row in known:
        points.setdefault(styles[row.policy], []).append(row)

    marks = tuple(
        Dots(style, tuple(_place(row, both) for row in rows_of_style)) for style, rows_of_style in points.items()
    )
    where = "the mean over tasks" if task == ALL_TASKS else task
    kind = min({row.at for row in known} - {UNTREATED}, default=UNTREATED).declared
    across, up = (_axis(one, [_place(row, both)[number] for row in known]) for number, one in enumerate(both))
    title = f"{measure.title} over {GER.title}, {where}, {mode}: a point for each policy and {kind.name}"
    plot = Plot(
        Drawing(Frame(across, up), marks, title, f"{task}/{mode}/scatter/{measure.name}/{place}"),
        f"{measure.title}, percent, over GER: {where.removeprefix('the ')}, {mode}",
        tuple(_spot(style, row, both) for style, rows_of_style in points.items() for row in rows_of_style),
        {style.index: style.policy for style in points},
        _left_out(shown, known),
    )
    return Scatter(plot, over_levels([row for row in known if row.policy not in CONTROLS], both))


def over_levels(rows: Sequence[SummaryRow], both: Pair) -> Correlation | Blank:
    """Correlates both measures, each row a point."""
    return correlation(*(np.array([one.value(row) for row in rows], dtype=np.float64) for one in both))


def correlation_text(correlation: Correlation | Blank) -> str:
    """Writes the correlation in a line.

    >>> correlation_text(Correlation(0.5, 0.0004, -0.25, 0.04, 12))
    'r = 0.50 (p < 0.001), ρ = −0.25 (p = 0.040), 12 points'
    """
    if isinstance(correlation, Blank):
        return f"no correlation: {correlation.reason}"
    pearson, spearman = (
        f"{coefficient:z.2f} ({p_equation(p)})".replace("-", "−")
        for coefficient, p in (
            (correlation.pearson, correlation.pearson_p),
            (correlation.spearman, correlation.spearman_p),
        )
    )
    return f"r = {pearson}, ρ = {spearman}, {correlation.n} points"


def p_equation(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _place(row: SummaryRow, both: Pair) -> tuple[float, float]:
    """Returns the place of a row that has both measures, in the units shown."""
    across, up = ((one.value(row) or 0.0) * one.factor for one in both)
    return across, up


def _axis(measure: Measure, values: Sequence[float]) -> Axis:
    top = measure.top or 1.0  # both have one
    fifths = max(1, math.ceil(5 * max(values) / top - 1e-9))
    return Axis.up_to(f"{measure.title}, {measure.unit}", top * fifths / 5, STEPS[fifths])


def _spot(style: LineStyle, row: SummaryRow, both: Pair) -> Spot:
    lines = [f"{one.title} {', '.join(numbers(one, row))}" for one in both]
    return Spot(style.index, *_place(row, both), f"{row.at}", (*lines, f"{row.n:,} questions"))


def _left_out(shown: Sequence[SummaryRow], known: Sequence[SummaryRow]) -> str:
    """Says which policies lack points at which levels, and why, each reason once: the tasks in which it holds stand
    where the cells are blank."""
    missing: dict[str, dict[str, list[str]]] = {}
    there = {(row.policy, row.at) for row in known}
    for row in shown:
        if (row.policy, row.at) not in there and row.policy != FULL:
            reason = (row.reason or "not measured").rpartition(": ")[2]
            missing.setdefault(reason, {}).setdefault(row.policy, []).append(str(row.at))
    told_of = {
        reason: [f"{policy} at {', '.join(levels)}" for policy, levels in policies.items()]
        for reason, policies in missing.items()
    }
    return "; ".join(f"{', '.join(policies)} ({reason})" for reason, policies in told_of.items())
