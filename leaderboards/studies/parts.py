"""Estimates over levels as curves, tables and texts, and addresses of answers: the parts of which
pages of studies are made."""

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
from leaderboards.statistics.text import p_text
from leaderboards.studies.declaration import Picture
from policies.declaration.levels import UNTREATED, Level, kinds_apart, name_levels
from policies.declaration.names import FULL

Row = TypeVar("Row")
Cells = Mapping[tuple[str, Level], Estimate]  # by policy and level
NONE = "–"


def examples_page(task: str, number: int = 1) -> str:
    """Returns the file name of the examples of a task, of the first results of a site or of
    others."""
    name = f"examples-{file_name(task)}"
    return f"{name}.html" if number == 1 else f"{name}.{number}.html"


def examples_at(page: str, policy: str, level: Level) -> str:
    """Returns the address of a page of examples at which it shows those of a policy at a level."""
    return f"{page}#{urlencode({'policy': policy, 'level': str(level)})}"


def estimate_mean(
    values: Any, contexts: Any, weights: Any = None, n: int | None = None
) -> Estimate:
    """Averages values, or divides their sum by that of the weights, and resamples contexts. All
    three have the shape (rows,). ``n``: how many values it is the mean of, where that is not the
    number of rows."""
    numbers = np.asarray(values, dtype=np.float64)
    names = np.asarray(contexts, dtype=str)
    if weights is None:
        mean = numbers.mean()
        # Under one seed, so that estimates of the same contexts on a page have the same resamples.
        resampled = resampled_means(numbers, names, 0)
    else:
        divisors = np.asarray(weights, dtype=np.float64)
        mean = numbers.sum() / divisors.sum()
        resampled = resampled_means(numbers, names, 0, weights=divisors)
    if n is None:
        n = len(numbers)
    return Estimate.of(float(mean), resampled, n)


def full_last(policies: Iterable[str]) -> dict[str, LineStyle]:
    """Returns a style for each policy, the same in every section, the full cache last."""
    names = dict.fromkeys(policies)
    return policy_styles(sorted(names, key=lambda policy: policy == FULL))


def without_full(styles: Mapping[str, LineStyle]) -> tuple[LineStyle, ...]:
    """Returns the styles of a legend whose lines all begin at the full cache, which has none."""
    return tuple(style for name, style in styles.items() if name != FULL)


def exactly(value: float) -> Estimate:
    """Makes a number without an interval."""
    return Estimate(value, None, None, 0)


@dataclass(frozen=True)
class BandedLine:
    """A line through places in the order in which they are joined, with a band from ``low`` to
    ``high``, if any."""

    style: LineStyle
    places: tuple[Place, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def marks(self) -> tuple[Mark, ...]:
        line = PolicyLine(self.style, self.places)
        if not self.low:
            return (line,)
        across = tuple(x for x, _ in self.places)
        return line, Band.between(self.style, across, self.low, self.high)


def banded_line(style: LineStyle, points: Iterable[tuple[float, Estimate]]) -> BandedLine:
    """Makes a line with a band, where all its points have intervals."""
    places: list[Place] = []
    low: list[float] = []
    high: list[float] = []
    for place, estimate in points:
        places.append((float(place), estimate.mean))
        if estimate.interval is not None:
            low.append(estimate.interval[0])
            high.append(estimate.interval[1])
    # A band with a gap would be drawn across a place that has no interval.
    if len(low) < len(places):
        return BandedLine(style, tuple(places))
    return BandedLine(style, tuple(places), tuple(low), tuple(high))


def in_powers(points: Iterable[tuple[float, Estimate | None]]) -> list[tuple[float, Estimate]]:
    """Returns estimates as powers of ten, for values of many orders of magnitude. What is not above
    0 has none: the point is left out, or its interval.

    >>> in_powers([(0, exactly(0.0)), (1, Estimate(1e-4, 1e-5, 1e-2, 3))])
    [(1, Estimate(mean=-4.0, low=-5.0, high=-2.0, n=3))]
    """
    powers = []
    for place, estimate in points:
        # ``not > 0`` and not ``<= 0``, since NaN has no power either.
        if estimate is None or not estimate.mean > 0:
            continue
        ends = None
        if estimate.interval is not None and estimate.interval[0] > 0:
            low, high = estimate.interval
            ends = (math.log10(low), math.log10(high))
        power = Estimate.within(math.log10(estimate.mean), ends, estimate.n)
        powers.append((place, power))
    return powers


def curve(
    title: str,
    note: str,
    lines: Sequence[BandedLine],
    axis: Axis,
    salt: str,
    upright: Axis | None = None,
) -> Picture:
    """Draws lines over an axis; without another, the upright axis is from 0, or the lowest below,
    to what lines and bands reach."""
    heights: list[float] = []
    marks: list[Mark] = []
    for line in lines:
        for _, height in line.places:
            heights.append(height)
        heights += [*line.low, *line.high]
        marks += line.marks
    frame = Frame(axis, upright or Axis.from_values("", heights))
    drawing = Drawing(frame, tuple(marks), f"{title}: {note} over the {axis.title}", salt)
    return Picture(title, note, drawing)


def over_levels(
    cells: Cells, styles: Mapping[str, LineStyle], title: str, note: str, salt: str
) -> tuple[Picture, ...]:
    """Draws policies over their levels, a picture for each kind of level, from their own value, or
    the full cache's, at the untreated cache on. What has one level, as int4, has it at each level
    of the others."""
    axes = axes_by_kind(level for policy, level in cells if policy in styles)
    pictures = []
    for ending, axis in axes.items():
        lines = _lines_over(axis, cells, styles)
        pictures.append(curve(f"{title}{ending}", note, lines, axis, f"{salt}{ending}"))
    return tuple(pictures)


def axes_by_kind(levels: Iterable[Level]) -> dict[str, Axis]:
    """Makes an axis for each kind of level, by the words that tell their pictures apart: none of a
    single kind."""
    groups = kinds_apart(levels)
    axes = {}
    for kind, levels_of_kind in groups.items():
        ending = f", by {kind}" if len(groups) > 1 else ""
        axes[ending] = Axis.over(levels_of_kind)
    return axes


def _lines_over(axis: Axis, cells: Cells, styles: Mapping[str, LineStyle]) -> list[BandedLine]:
    has_levels = {policy for policy, level in cells if level != UNTREATED}
    lines = []
    for policy, style in styles.items():
        levels = []
        # The untreated level is left out here, as it is put at the origin below.
        for name, level in cells:
            if name == policy and level in axis and level.amount:
                levels.append(level)
        points = [(level.value, cells[policy, level]) for level in sorted(levels)]
        untreated = cells.get((policy, UNTREATED), cells.get((FULL, UNTREATED)))
        if points and axis.origin is not None and untreated is not None:
            points.insert(0, (axis.origin, untreated))
        elif (policy, UNTREATED) in cells and policy not in {*has_levels, FULL}:
            points = [(end, cells[policy, UNTREATED]) for end in axis.ends]
        if points:
            lines.append(banded_line(style, points))
    return lines


def level_table(
    title: str, cells: Mapping[tuple[str, Level], str], first: str = "policy"
) -> Listing:
    """Lists policies, which the ``first`` column holds, against levels. The full cache has the same
    at each."""
    treated: set[Level] = set()
    policies: dict[str, None] = {}
    for policy, level in cells:
        policies[policy] = None
        if policy != FULL:
            treated.add(level)
    # By what is done to the cache, which rises where bits or kept tokens become fewer.
    levels = sorted(treated, key=lambda level: (level.kind, level.amount))
    names = name_levels(levels)
    rows = []
    for policy in policies:
        texts = []
        for level in levels:
            place = (FULL, UNTREATED) if policy == FULL else (policy, level)
            texts.append(cells.get(place, NONE))
        rows.append((policy, *texts))
    return Listing(title, (first, *(names[level] for level in levels)), tuple(rows))


def list_rows(
    title: str, rows: Iterable[Row], columns: Mapping[str, Callable[[Row], object]]
) -> Listing:
    """Lists rows by column; an estimate is a share in percent, and nothing is a dash."""
    lines = []
    for row in rows:
        lines.append(tuple(_text(write(row)) for write in columns.values()))
    return Listing(title, tuple(columns), tuple(lines))


def listing_of_fields(
    title: str,
    rows: Sequence[Any],
    forms: Mapping[str, str | Callable[[Any], str]],
    leave_out: Sequence[str] = (),
) -> Listing:
    """Lists dataclasses with a column for each field, named as in the download. ``forms``: how the
    values of a field are written, where that is not as everywhere; the text of a function, or a
    format."""
    names, headings = [], []
    for field in fields(rows[0]):
        if field.name not in leave_out:
            names.append(field.name)
            headings.append(field.name.replace("_", " "))
    lines = []
    for row in rows:
        texts = [_text(getattr(row, name), forms.get(name, "")) for name in names]
        lines.append(tuple(texts))
    return Listing(title, tuple(headings), tuple(lines))


def _text(value: object, form: str | Callable[[Any], str] = "") -> str:
    if callable(form):
        return form(value)
    if isinstance(value, Estimate):
        return in_numbers(value, form) if form else in_percent(value)
    # NaN alone differs from itself.
    if value is None or value != value:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):  # a link stays one
        return value
    if isinstance(value, float):
        return format(value, form or ".2g")
    return str(value)


def in_numbers(estimate: Estimate | None, form: str = "z.2f", times: float = 1) -> str:
    """Writes an estimate with its interval; a dash for none.

    >>> in_numbers(Estimate(0.5, 0.25, 1, 4)), in_numbers(None), in_points(Estimate(-0.25, -0.5, 0.125, 4))
    ('0.50 [0.25 to 1.00]', '–', '-25 [-50 to +12]')
    """
    if estimate is None:
        return NONE
    mean = format(times * estimate.mean, form)
    if estimate.interval is None:
        return mean
    low, high = estimate.interval
    return f"{mean} [{times * low:{form}} to {times * high:{form}}]"


def p_or_dash(p: float | None) -> str:
    return NONE if p is None else p_text(p)


# Of the fields of ``statistics.series.PValue``.
P_FORMS = dict.fromkeys(("p", "p_bonferroni", "p_bh"), p_or_dash)
in_percent = partial(in_numbers, form="z.0f", times=100)  # of a share
in_points = partial(in_numbers, form="+z.0f", times=100)  # of a difference of shares
