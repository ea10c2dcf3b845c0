"""Frames that drawings stand on (the axes, their scales and their ticks), and the marks on them. A
page has them as SVG (``drawing.py``), print by seaborn (``paper``)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from leaderboards.rendering.style import INK_COLOUR, LineStyle
from policies.declaration.levels import UNTREATED, Level, LevelKind
from policies.declaration.names import FULL, ORACLE, RANDOM, RECENCY

INK = INK_COLOUR[0]
SHARE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SMALLEST_STEP = 1e-3  # of numbers that are short enough for ten ticks


@dataclass(frozen=True)
class Axis:
    title: str
    ticks: tuple[float, ...]
    first: float  # where it begins
    last: float  # where it ends
    kind: LevelKind | None = None  # of the levels that it is over, if it is over levels

    @classmethod
    def around(cls, title: str, ticks: tuple[float, ...]) -> Self:
        """Makes an axis that reaches a little beyond the ticks at both ends."""
        first, last = ticks[0], ticks[-1]
        span = last - first or last  # of a single level too
        margin = 0.03 * span
        return cls(title, ticks, first - margin, last + margin)

    @classmethod
    def up_to(cls, title: str, top: float, steps: int = 5, highest: float = 0.0) -> Self:
        """Makes an axis in equal steps from 0 to ``top``, with some room above. Where ``highest``,
        a value that is drawn, lies above, the axis ends there."""
        ticks = tuple(top * step / steps for step in range(steps + 1))
        return cls(title, ticks, 0.0, max(top, highest) + 0.03 * top)

    @classmethod
    def counted(cls, title: str, count: int) -> Self:
        """Makes an axis of things that are counted from 0, with seven ticks at most."""
        step = max(1, math.ceil((count - 1) / 6))
        ticks = tuple(map(float, range(0, count, step)))
        return cls(title, ticks, -0.3, count - 0.7)

    @classmethod
    def for_layers(cls, count: int) -> Self:
        """Makes an axis of the layers of a model."""
        return cls.counted("layer", count)

    @classmethod
    def from_values(
        cls, title: str, values: Sequence[float], steps: int = 5, top: float = 1.0
    ) -> Self:
        """Makes an axis in round steps from 0, or the lowest value below, to the highest, or
        ``top`` if all are 0."""
        low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
        step = _round_step((high - low or top) / steps)
        if not high and not low:
            high = top
        # A quotient of floats may lie just beyond a whole number, which would be a step too many.
        first = math.floor(low / step + 1e-9)
        last = math.ceil(high / step - 1e-9)
        ticks = tuple(step * number for number in range(first, last + 1))
        room = 0.03 * (ticks[-1] - ticks[0])
        return cls(title, ticks, ticks[0], ticks[-1] + room)

    @classmethod
    def over(cls, levels: Sequence[Level]) -> Self:
        """Makes an axis of levels of one kind: doubling, as papers choose budgets, or from 0 on."""
        first = min(set(levels) - {UNTREATED}, default=UNTREATED)
        kind = first.declared
        values = sorted({level.value for level in levels if level.kind == first.kind})
        if kind.doubling:
            return cls(kind.axis, tuple(values), values[0] * 0.97, values[-1] * 1.03, kind)
        origin = kind.nothing if kind.has_origin else 0.0
        last = max(origin, *values[-1:], 0.0) or 1.0
        step = 10.0 ** (math.ceil(math.log10(last) - 1e-9) - 1)
        if step < SMALLEST_STEP and last > 5 * step:
            step *= 5
        # 0.3 / 0.1 lies just below 3, and the last tick would be lost.
        steps = math.floor(last / step + 1e-9)
        ticks = tuple(round(number * step, 12) for number in range(steps + 1))
        return cls(kind.axis, ticks, 0.0, last * 1.03, kind)

    def __contains__(self, level: Level) -> bool:
        """Tells whether it is over levels of this kind; the untreated cache is its origin."""
        return level != UNTREATED and self.kind is not None and self.kind.name == level.kind

    @property
    def origin(self) -> float | None:
        """Returns the place of the untreated cache, if it has one."""
        if self.kind is None or not self.kind.has_origin:
            return None
        return self.kind.nothing

    @property
    def ends(self) -> tuple[float, float]:
        """Returns the first and the last place of a line that is the same at every level."""
        # Without the room of 3 % behind the last level.
        return self.ticks[0], self.last / 1.03

    @property
    def doubling(self) -> bool:
        """Tells whether equal steps along it are factors of 2."""
        return self.kind is not None and self.kind.doubling

    @property
    def ticks_inside(self) -> list[float]:
        """Lists the ticks that lie between both ends."""
        return [tick for tick in self.ticks if self.first <= tick <= self.last]

    def share(self, value: float) -> float:
        """Returns how far along the axis a value is: 0 at its beginning, 1 at its end."""
        first, last = self.first, self.last
        if self.doubling:
            first, value, last = math.log2(first), math.log2(value), math.log2(last)
        return (value - first) / (last - first)


def _round_step(rough: float) -> float:
    """Returns the smallest of 1, 2, 5 and 10, times a power of ten, that is no less."""
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1, 2, 5):
        if power * factor >= rough:
            return power * factor
    return power * 10


@dataclass(frozen=True)
class Frame:
    """Two axes with little ink. On a page the title of the vertical one stands above the drawing,
    in print beside."""

    horizontal: Axis
    vertical: Axis
    corner: str = ""  # what the upper left corner of the drawing is


Place = tuple[float, float]  # in the units of the axes
FAINT = 0.08  # opacity of the area around a line
HOLLOW = {FULL: "*", ORACLE: "o", RANDOM: "s", RECENCY: "D"}  # the dots of controls


@dataclass(frozen=True)
class PolicyLine:
    """A line in the style of its policy, by which the page finds it."""

    style: LineStyle
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Dots:
    """Points of a policy that are joined by nothing; those of controls are hollow."""

    style: LineStyle
    places: tuple[Place, ...]

    @property
    def shape(self) -> str:
        """Returns the marker, in the letters of matplotlib."""
        if not self.style.control:
            return self.style.marker
        return HOLLOW.get(self.style.policy, "o")


@dataclass(frozen=True)
class Band:
    """The area around a line, from the low ends of its intervals to the high ones; or a layer of a
    stack."""

    style: LineStyle
    outline: tuple[Place, ...]
    opacity: float = FAINT

    @classmethod
    def between(
        cls,
        style: LineStyle,
        x: Sequence[float],
        low: Sequence[float],
        high: Sequence[float],
        opacity: float = FAINT,
    ) -> Self:
        """Makes the area between two lines over the same places."""
        below = list(zip(x, low, strict=True))
        above = list(zip(x, high, strict=True))
        return cls(style, (*below, *reversed(above)), opacity)


@dataclass(frozen=True)
class Region:
    low: Place  # its lower left corner
    high: Place  # its upper right corner


Mark = PolicyLine | Dots | Band | Region


def depth(mark: Mark) -> int:
    """Returns 1 for what lies under all lines, 2 for lines of controls, and 3 for those of methods
    above them."""
    if isinstance(mark, Band | Region):
        return 1
    if mark.style.control:
        return 2
    return 3
