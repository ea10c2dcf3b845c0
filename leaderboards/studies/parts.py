"""Estimates over levels as curves, tables and texts, and addresses of answers: the parts of which pages of studies are
made."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

import numpy as np

from leaderboards.downloads.sheets import file_name
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Band, Frame, Mark, Place, PolicyLine
from leaderboards.rendering.style import LineStyle, policy_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate, resampled_means
from leaderboards.studies.declaration import Picture
from policies.declaration.levels import UNTREATED, Level, kinds_apart, names_of
from policies.declaration.names import FULL

Row = TypeVar("Row")
Cells = Mapping[tuple[str, Level], Estimate]  # by policy and level
NONE = "–"


def examples_page(task: str, number: int = 1) -> str:
    """Returns the file name of the examples of a task, of the first results of a site or of others."""
    return (
        f"examples-{file_name(task)}.html"
        if number == 1
        else f"examples-{file_name(task)}.{number}.html"
    )


def examples_at(page: str, policy: str, level: Level) -> str:
    """Returns the address of a page of examples at which it shows those of a policy at a level."""
    return f"{page}#{urlencode({'policy': policy, 'level': str(level)})}"


def estimate_mean(
    values: Any, contexts: Any, weights: Any = None, n: int | None = None
) -> Estimate:
    """Averages values, or divides their sum by that of the weights, and resamples contexts. ``n``: how many values it
    is the mean of, where that is not the number of rows."""
    numbers = np.asarray(values, dtype=np.float64)
    whole = None if weights is None else np.asarray(weights, dtype=np.float64)
    mean = float(numbers.mean() if whole is None else numbers.sum() / whole.sum())
    drawn = resampled_means(numbers, np.asarray(contexts, dtype=str), 0, weights=whole)
    return Estimate.of(mean, drawn, len(numbers) if n is None else n)


def full_last(policies: Iterable[str]) -> dict[str, LineStyle]:
    """Returns a style for each policy, the same in every section, the full cache last."""
    return policy_styles(sorted(dict.fromkeys(policies), key=lambda policy: policy == FULL))


def exactly(value: float) -> Estimate:
    """Makes a number without an interval."""
    return Estimate(value, None, None, 0)


@dataclass(frozen=True)
class BandedLine:
    """A line through places in the order in which they are joined, with a band from ``low`` to ``high``, if any."""

    style: LineStyle
    places: tuple[Place, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def marks(self) -> tuple[Mark, ...]:
        line = PolicyLine(self.style, self.places)
        if not self.low:
            return (line,)
        return line, Band.between(self.style, tuple(x for x, _ in self.places), self.low, self.high)


def banded_line(style: LineStyle, points: Iterable[tuple[float, Estimate]]) -> BandedLine:
    """Makes a line with a band, where all its points have intervals."""
    points = list(points)
    intervals = [one.interval for _, one in points if one.interval is not None]
    low, high = (
        zip(*intervals, strict=True) if points and len(intervals) == len(points) else ((), ())
    )
    return BandedLine(style, tuple((float(place), one.mean) for place, one in points), low, high)


def in_powers(points: Iterable[tuple[float, Estimate | None]]) -> list[tuple[float, Estimate]]:
    """Returns estimates as powers of ten, for values of many orders of magnitude. What is not above 0 has none: the
    point is left out, or its interval.

    >>> in_powers([(0, exactly(0.0)), (1, Estimate(1e-4, 1e-5, 1e-2, 3))])
    [(1, Estimate(mean=-4.0, low=-5.0, high=-2.0, n=3))]
    """
    powers = []
    for place, estimate in points:
        if estimate is None or not estimate.mean > 0:
            continue
        low, high = estimate.interval or (0.0, 0.0)
        ends = (math.log10(low), math.log10(high)) if low > 0 else None
        powers.append((place, Estimate.within(math.log10(estimate.mean), ends, estimate.n)))
    return powers


def curve(
    title: str,
    note: str,
    lines: Sequence[BandedLine],
    axis: Axis,
    salt: str,
    upright: Axis | None = None,
) -> Picture:
    """Draws lines over an axis; without another, the upright axis is from 0, or the lowest below, to what lines and
    bands reach."""
    ends = [end for line in lines for end in (*(y for _, y in line.places), *line.low, *line.high)]
    upright = upright or Axis.from_values("", ends)
    marks = tuple(mark for line in lines for mark in line.marks)
    drawing = Drawing(Frame(axis, upright), marks, f"{title}: {note} over the {axis.title}", salt)
    return Picture(title, note, drawing)


def over_levels(
    cells: Cells, styles: Mapping[str, LineStyle], title: str, note: str, salt: str
) -> tuple[Picture, ...]:
    """Draws policies over their levels, a picture for each kind of level, from their own value, or the full cache's, at
    the untreated cache on. What has one level, as int4, has it at each level of the others."""
    axes = axes_by_kind(level for policy, level in cells if policy in styles)
    return tuple(
        _over_axis(cells, styles, f"{title}{ending}", note, f"{salt}{ending}", axis)
        for ending, axis in axes.items()
    )


def axes_by_kind(levels: Iterable[Level]) -> dict[str, Axis]:
    """Makes an axis for each kind of level, by the words that tell their pictures apart: none of a single kind."""
    groups = kinds_apart(levels)
    return {
        f", by {kind}" if len(groups) > 1 else "": Axis.over(of_kind)
        for kind, of_kind in groups.items()
    }


def _over_axis(
    cells: Cells, styles: Mapping[str, LineStyle], title: str, note: str, salt: str, axis: Axis
) -> Picture:
    has_levels = {policy for policy, level in cells if level != UNTREATED}
    lines = []
    for policy, style in styles.items():
        levels = sorted(
            level for name, level in cells if name == policy and level in axis and level.amount
        )
        untreated = cells.get((policy, UNTREATED), cells.get((FULL, UNTREATED)))
        points = [(level.value, cells[policy, level]) for level in levels]
        if levels and axis.origin is not None and untreated is not None:
            points.insert(0, (axis.origin, untreated))
        elif (policy, UNTREATED) in cells and policy not in {*has_levels, FULL}:
            points = [(end, cells[policy, UNTREATED]) for end in axis.ends]
        if points:
            lines.append(banded_line(style, points))
    return curve(title, note, lines, axis, salt)


def level_table(
    title: str, cells: Mapping[tuple[str, Level], str], first: str = "policy"
) -> Listing:
    """Lists policies, which the ``first`` column holds, against levels. The full cache has the same at each."""
    levels = sorted(
        {level for policy, level in cells if policy != FULL},
        key=lambda level: (level.kind, level.amount),
    )
    whole = cells.get((FULL, UNTREATED), NONE)
    names = names_of(levels)
    rows = tuple(
        (
            policy,
            *(whole if policy == FULL else cells.get((policy, level), NONE) for level in levels),
        )
        for policy in dict.fromkeys(policy for policy, _ in cells)
    )
    return Listing(title, (first, *(names[level] for level in levels)), rows)


def list_rows(
    title: str, rows: Iterable[Row], columns: Mapping[str, Callable[[Row], object]]
) -> Listing:
    """Lists rows by column; an estimate is a share in percent, and nothing is a dash."""
    return Listing(
        title,
        tuple(columns),
        tuple(tuple(_text(write(row)) for write in columns.values()) for row in rows),
    )


def listing_of_fields(
    title: str,
    rows: Sequence[Any],
    forms: Mapping[str, str | Callable[[Any], str]],
    leave_out: Sequence[str] = (),
) -> Listing:
    """Lists dataclasses with a column for each field, named as in the download. ``forms``: how the values of a field
    are written, where that is not as everywhere; the text of a function, or a format."""
    names = [one.name for one in fields(rows[0]) if one.name not in leave_out]
    written = tuple(
        tuple(_text(getattr(row, name), forms.get(name, "")) for name in names) for row in rows
    )
    return Listing(title, tuple(name.replace("_", " ") for name in names), written)


def _text(value: object, form: str | Callable[[Any], str] = "") -> str:
    if callable(form):
        return form(value)
    if isinstance(value, Estimate):
        return in_numbers(value, form) if form else in_percent(value)
    if value is None or value != value:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):  # a link stays one
        return value
    return f"{value:{form or '.2g'}}" if isinstance(value, float) else str(value)


def in_numbers(estimate: Estimate | None, form: str = "z.2f", times: float = 1) -> str:
    """Writes an estimate with its interval; a dash for none.

    >>> in_numbers(Estimate(0.5, 0.25, 1, 4)), in_numbers(None), in_points(Estimate(-0.25, -0.5, 0.125, 4))
    ('0.50 [0.25 to 1.00]', '–', '-25 [-50 to +12]')
    """
    if estimate is None:
        return NONE
    mean, *ends = (f"{times * one:{form}}" for one in (estimate.mean, *(estimate.interval or ())))
    return f"{mean} [{' to '.join(ends)}]" if ends else mean


in_percent = partial(in_numbers, form="z.0f", times=100)  # of a share
in_points = partial(in_numbers, form="+z.0f", times=100)  # of a difference of shares
