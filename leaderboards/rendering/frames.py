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
        margin = 0.03 * (ticks[-1] - ticks[0] or ticks[-1])  # of a single level too
        return cls(title, ticks, ticks[0] - margin, ticks[-1] + margin)

    @classmethod
    def up_to(cls, title: str, top: float, steps: int = 5) -> Self:
        """Makes an axis in equal steps from 0, with some room above."""
        return cls(title, tuple(top * step / steps for step in range(steps + 1)), 0.0, top * 1.03)

    @classmethod
    def counted(cls, title: str, count: int) -> Self:
        """Makes an axis of things that are counted from 0, with seven ticks at most."""
        step = max(1, math.ceil((count - 1) / 6))
        return cls(
            title, tuple(float(number) for number in range(0, count, step)), -0.3, count - 0.7
        )

    @classmethod
    def of_layers(cls, count: int) -> Self:
        """Makes an axis of the layers of a model."""
        return cls.counted("layer", count)

    @classmethod
    def from_values(
        cls, title: str, values: Sequence[float], steps: int = 5, top: float = 1.0
    ) -> Self:
        """Makes an axis in round steps from 0, or the lowest value below, to the highest, or
        ``top`` if all are 0."""
        low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
        rough = (high - low or top) / steps
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * round_one for round_one in (1, 2, 5, 10) if power * round_one >= rough)
        first, last = (
            math.floor(low / step + 1e-9),
            math.ceil((high or top * (low == 0)) / step - 1e-9),
        )
        ticks = tuple(step * number for number in range(first, last + 1))
        return cls(title, ticks, ticks[0], ticks[-1] + 0.03 * (ticks[-1] - ticks[0]))

    @classmethod
    def over(cls, levels: Sequence[Level]) -> Self:
        """Makes an axis of levels of one kind: doubling, as papers choose budgets, or from 0 on."""
        first = min(set(levels) - {UNTREATED}, default=UNTREATED)
        kind, values = (
            first.declared,
            sorted({level.value for level in levels if level.kind == first.kind}),
        )
        if kind.doubling:
            return cls(kind.axis, tuple(values), values[0] * 0.97, values[-1] * 1.03, kind)
        last = max(values[-1] if values else 0.0, kind.nothing if kind.has_origin else 0.0) or 1.0
        step = 10.0 ** (math.ceil(math.log10(last) - 1e-9) - 1)
        if step < SMALLEST_STEP and last > 5 * step:
            step *= 5
        ticks = tuple(
            round(number * step, 12) for number in range(math.floor(last / step + 1e-9) + 1)
        )
        return cls(kind.axis, ticks, 0.0, last * 1.03, kind)

    def __contains__(self, level: Level) -> bool:
        """Tells whether it is over levels of this kind; the untreated cache is its origin."""
        return level != UNTREATED and self.kind is not None and self.kind.name == level.kind

    @property
    def origin(self) -> float | None:  # the place of the untreated cache
        return self.kind.nothing if self.kind is not None and self.kind.has_origin else None

    @property
    def ends(self) -> tuple[float, float]:
        """Returns the first and the last place of a line that is the same at every level."""
        return self.ticks[0], self.last / 1.03

    @property
    def doubling(self) -> bool:  # equal steps along it are factors of 2
        return self.kind is not None and self.kind.doubling

    @property
    def ticks_inside(self) -> list[float]:
        return [tick for tick in self.ticks if self.first <= tick <= self.last]

    def share(self, value: float) -> float:
        """Returns how far along the axis a value is: 0 at its beginning, 1 at its end."""
        ends = (self.first, value, self.last)
        first, at, last = map(math.log2, ends) if self.doubling else ends
        return (at - first) / (last - first)


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
        return HOLLOW.get(self.style.policy, "o") if self.style.control else self.style.marker


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
        return cls(
            style, (*zip(x, low, strict=True), *reversed(list(zip(x, high, strict=True)))), opacity
        )


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
    return 2 if mark.style.control else 3
