"""Draws curves of a measure over the levels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.boards.cliff import CLIFFS, Cliff
from leaderboards.metrics import Interval, Measure
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Frame
from leaderboards.rendering.marks import Band, Break, Mark, PolicyLine
from leaderboards.rendering.plots import Plot, Spot, in_words, numbers
from leaderboards.rendering.style import LineStyle, line_styles
from leaderboards.statistics.bootstrap import Blank
from policies.declaration.levels import Level
from policies.declaration.names import FULL

Point = tuple[float, float, Interval | None]
Cliffs = Mapping[str, Cliff | Blank]

CLIFF_NOTE = (
    "A ring marks the cliff of a method, where this rises fastest, with its 95 % interval; "
    "if it is faint, it may be no rise at all."
)
TENTH = 10  # percentage points for a tenth of ratio, of a susceptibility of 1


def curve_plot(
    rows: Sequence[SummaryRow],
    task: str,
    mode: str,
    measure: Measure,
    cliffs: Cliffs | None = None,
    styles: Mapping[str, LineStyle] | None = None,
    place: str = "",
) -> Plot:
    """Draws one line for each policy of ``rows``, from the full cache at ratio 0, with a band for each method where
    there are intervals. ``cliffs``: by policy, of this measure. ``styles``: of all policies of a site, if the rows are
    not. ``place``: different for each drawing of a page.

    A blank cell leaves a gap, which is never bridged. The group of a line has the attribute ``data-policy`` with the
    index of its :class:`~leaderboards.rendering.style.LineStyle`.
    """
    styles = styles or line_styles(rows)
    shown = [row for row in rows if row.task == task and row.mode == mode]
    levels = sorted({row.at for row in shown})
    horizontal = Axis.over(levels)
    full = next((row for row in shown if row.policy == FULL), None)
    rows_by_style: dict[LineStyle, list[SummaryRow]] = {}
    for row in shown:
        rows_by_style.setdefault(styles[row.policy], []).append(row)
    lines = {style: _points(of_policy, full, measure, horizontal) for style, of_policy in rows_by_style.items()}
    broken = _cliffs(lines, cliffs or {}) if measure in CLIFFS else {}

    marks = [mark for style, runs in lines.items() for mark in _marks(style, runs)]
    marks += [_break(style, *cliff) for style, cliff in broken.items()]
    where = "the mean over tasks" if task == ALL_TASKS else task
    title = f"{measure.title} ({measure.unit}) over the {horizontal.title}, {where}, {mode}: a line for each policy"
    frame = Frame(horizontal, _vertical(measure, lines.values()))
    levels = [level for level in levels if level.declared == horizontal.kind]
    spots = [spot for style, of_policy in rows_by_style.items() for spot in _spots(style, of_policy, measure, levels)]
    return Plot(
        Drawing(frame, tuple(marks), title, f"{task}/{mode}/{measure.name}/{place}"),
        f"{measure.title}, {measure.unit}: {where.removeprefix('the ')}, {mode}",
        (*spots, *(_cliff_spot(style, *cliff) for style, cliff in broken.items())),
        {style.index: style.policy for style in lines},
        CLIFF_NOTE if broken else "",
    )


def _vertical(measure: Measure, lines: Iterable[Sequence[Sequence[Point]]]) -> Axis:
    """Fits an axis to the lines and bands, with 0 kept: on one from 0 to 100 a rate of a few percent lies flat."""
    points = [point for runs in lines for run in runs for point in run]
    ends = [end for _, value, interval in points for end in (value, *(interval or ()))]
    return Axis.from_values(f"{measure.title}, {measure.unit}", ends, top=measure.top or 1.0)


def _points(
    rows: Sequence[SummaryRow], full: SummaryRow | None, measure: Measure, horizontal: Axis
) -> list[list[Point]]:
    """Runs of (level, value, interval) without a gap, in the unit shown."""
    if full is not None and any(row is full for row in rows):
        # The full cache has one cell, and is what every level is compared with.
        value = _scale(measure, full)
        ends = (horizontal.ticks[0], horizontal.last / 1.03)
        return [[(end, value, None) for end in ends]] if value is not None else []
    origin = horizontal.origin if full is not None else None
    anchor = [(origin, full)] if full is not None and origin is not None else []
    runs: list[list[Point]] = [[]]
    of_kind = [row for row in rows if row.at.declared == horizontal.kind and row.at.value != origin]
    for place, row in [*anchor, *((row.at.value, row) for row in sorted(of_kind, key=lambda row: row.at.amount))]:
        value = _scale(measure, row)
        if value is None:
            runs.append([])
        else:
            interval = measure.interval(row)
            scaled = None if interval is None else (interval[0] * measure.factor, interval[1] * measure.factor)
            runs[-1].append((place, value, scaled))
    # The anchor is no measurement of the policy: it is drawn only where it leads to one.
    return [run for run in runs if run and not (anchor and len(run) == 1 and run[0][0] == origin)]


def _scale(measure: Measure, row: SummaryRow) -> float | None:
    value = measure.value(row)
    return None if value is None else value * measure.factor


def _marks(style: LineStyle, runs: Sequence[Sequence[Point]]) -> Iterator[Mark]:
    for run in runs:
        yield PolicyLine(style, tuple((ratio, value) for ratio, value, _ in run))
        intervals = [(ratio, *interval) for ratio, _, interval in run if interval is not None]
        if not style.control and len(intervals) > 1:
            places, low, high = zip(*intervals, strict=True)
            yield Band.between(style, places, low, high)


def _break(style: LineStyle, cliff: Cliff, height: float) -> Break:
    ends = None if cliff.low is None or cliff.high is None else (cliff.low, cliff.high)
    return Break(style, (cliff.ratio, height), ends, cliff.is_clear)


def _spots(style: LineStyle, rows: Sequence[SummaryRow], measure: Measure, levels: Sequence[Level]) -> list[Spot]:
    """Returns the spots of one policy, whose ``rows`` these are. The full cache, which is the same at every level, has
    one at each."""
    places = [(level, rows[0]) for level in levels] if style.policy == FULL else [(row.at, row) for row in rows]
    return [
        Spot(style.index, level.value, value, f"{level}", (*numbers(measure, row), f"{row.n:,} questions"))
        for level, row in places
        if level in levels and (value := _scale(measure, row)) is not None
    ]


def _cliffs(
    lines: Mapping[LineStyle, Sequence[Sequence[Point]]], cliffs: Cliffs
) -> dict[LineStyle, tuple[Cliff, float]]:
    """Returns the cliffs of methods, with the height of the curve there."""
    places_of_cliffs = {}
    for style, runs in lines.items():
        cliff = cliffs.get(style.policy)
        if isinstance(cliff, Cliff) and not style.control and runs:  # none at levels of another kind than the axis
            ratios, values = zip(*((ratio, value) for run in runs for ratio, value, _ in run), strict=True)
            places_of_cliffs[style] = (cliff, float(np.interp(cliff.ratio, ratios, values)))
    return places_of_cliffs


def _cliff_spot(style: LineStyle, cliff: Cliff, height: float) -> Spot:
    place, rise = cliff.interval, cliff.rise.interval
    lines = (
        "cliff" + (f", {in_words(place, 1, 2)}" if place else ""),
        f"{TENTH * cliff.rise.mean:+z.1f} points for a tenth",
        *([in_words(rise, TENTH, 1)] if rise else []),
        *([] if cliff.is_clear else ["may be no rise at all"]),
    )
    return Spot(style.index, cliff.ratio, height, f"{cliff.ratio:.2f}", lines)
