"""Curves of a measure over the asked ratio or budget."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from matplotlib.axes import Axes

from leaderboards.asked import Asked
from leaderboards.drawing import Drawing, draw_band, draw_line, dress
from leaderboards.measures import Interval, Measure
from leaderboards.row import ALL_TASKS, FULL, SummaryRow
from leaderboards.style import LineStyle, line_styles

Point = tuple[float, float, Interval | None]


@dataclass(frozen=True)
class Scale:
    """The horizontal axis: ratios from 0 on, or budgets, each twice the last one as papers choose them."""

    title: str
    first: float
    last: float
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, levels: Sequence[Asked]) -> Self:
        budgets = [asked.value for asked in levels if asked.kind == "budget"]
        if budgets:
            return cls("asked budget, in tokens of a head", budgets[0], budgets[-1], tuple(budgets))
        last = max((asked.value for asked in levels), default=0.0) or 1.0
        return cls("asked ratio", 0.0, last, tuple(tenth / 10 for tenth in range(math.floor(last * 10 + 1e-9) + 1)))

    @property
    def has_full(self) -> bool:
        """Whether the full cache is at a place of its own."""
        return self.first == 0


def curve_drawing(
    rows: Sequence[SummaryRow],
    task: str,
    mode: str,
    measure: Measure,
    styles: Mapping[str, LineStyle] | None = None,
    place: str = "",
) -> Drawing:
    """One line for each policy of ``rows``, from the full cache at ratio 0; a band where F1 has an interval.

    ``styles``: of all policies of a site, where that has others too. ``place``: differs between drawings of one task,
    mode and measure on a page.

    A blank cell leaves a gap, which is never bridged. The group of a line has the attribute ``data-policy`` with the
    index of its :class:`~leaderboards.style.LineStyle`.
    """
    styles = line_styles(rows) if styles is None else styles
    shown = [row for row in rows if row.task == task and row.mode == mode]
    salt = f"{task}/{mode}/{measure.name}/{place}"
    full = next((row for row in shown if row.policy == FULL), None)
    scale = Scale.of(sorted({row.asked for row in shown}))

    def draw(axes: Axes) -> None:
        _dress(axes, measure, scale)
        for policy, style in styles.items():
            points = _points([row for row in shown if row.policy == policy], full, measure, scale)
            _draw_line(axes, style, points, band=measure.name == "f1")

    colours = {style.colours[0]: style.variable for style in styles.values()}
    where = "the mean over tasks" if task == ALL_TASKS else task
    title = f"{measure.title} ({measure.unit}) over the {scale.title}, {where}, {mode}: a line for each policy"
    return Drawing(draw, title, salt, colours)


def curve_figure(
    rows: Sequence[SummaryRow],
    task: str,
    mode: str,
    measure: Measure,
    styles: Mapping[str, LineStyle] | None = None,
    place: str = "",
) -> str:
    """The same as a part of a page."""
    return curve_drawing(rows, task, mode, measure, styles, place).svg()


def _points(rows: Sequence[SummaryRow], full: SummaryRow | None, measure: Measure, scale: Scale) -> list[list[Point]]:
    """Runs of (ratio or budget, value, interval) without a gap, in the unit shown."""
    if full is not None and full in rows:
        # The full cache has one cell, and is what every ratio is compared with.
        value = _scaled(measure, full)
        return [[(scale.first, value, None), (scale.last, value, None)]] if value is not None else []
    anchor = [full] if full is not None and scale.has_full else []
    runs: list[list[Point]] = [[]]
    for row in [*anchor, *(row for row in rows if row.asked.value > 0 or not anchor)]:
        value = _scaled(measure, row)
        if value is None:
            runs.append([])
        else:
            interval = measure.interval(row)
            scaled = None if interval is None else (interval[0] * measure.factor, interval[1] * measure.factor)
            runs[-1].append((row.asked.value, value, scaled))
    # The anchor is no measurement of the policy: it is drawn only where it leads to one.
    return [run for run in runs if run and not (anchor and len(run) == 1 and run[0][0] == 0)]


def _scaled(measure: Measure, row: SummaryRow) -> float | None:
    value = measure.value(row)
    return None if value is None else value * measure.factor


def _draw_line(axes: Axes, style: LineStyle, runs: Sequence[Sequence[Point]], band: bool) -> None:
    for number, run in enumerate(runs):
        ratios, values = [ratio for ratio, _, _ in run], [value for _, value, _ in run]
        draw_line(axes, style, ratios, values, label=style.policy if number == 0 else None)
        intervals = [(ratio, interval) for ratio, _, interval in run if interval is not None]
        if band and not style.control and len(intervals) > 1:
            lows, highs = [low for _, (low, _) in intervals], [high for _, (_, high) in intervals]
            draw_band(axes, style, [ratio for ratio, _ in intervals], lows, highs)


def _dress(axes: Axes, measure: Measure, scale: Scale) -> None:
    """Axes with little ink: a base line, faint horizontal lines, and whole steps."""
    if not scale.has_full:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xlim(scale.first * 0.97, scale.last * 1.03)
    axes.set_ylim(0, measure.top * 1.03)
    axes.set_xticks(scale.ticks, [f"{tick:g}" for tick in scale.ticks])
    axes.set_yticks([measure.top * step / 5 for step in range(6)])
    dress(axes, scale.title)
