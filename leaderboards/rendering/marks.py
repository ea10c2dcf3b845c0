"""Marks: what stands on the frame of a drawing. A page has them as SVG (``drawing.py``), print by matplotlib
(``printed.py``)."""

from dataclasses import dataclass

from leaderboards.rendering.style import LineStyle
from policies.declaration.names import FULL, ORACLE, RANDOM, RECENCY

Place = tuple[float, float]  # in the units of the axes
FAINT = 0.08  # opacity of the area around a line
BEHIND = 1  # the depth of what lies under all lines
HOLLOW = {FULL: "*", ORACLE: "o", RANDOM: "s", RECENCY: "D"}  # the dots of controls


@dataclass(frozen=True)
class PolicyLine:
    """A line in the style of its policy, by which the page finds it."""

    style: LineStyle
    places: tuple[Place, ...]

    @property
    def depth(self) -> int:
        return _depth(self.style)


@dataclass(frozen=True)
class Dots:
    """Points of a policy that are joined by nothing; those of controls are hollow."""

    style: LineStyle
    places: tuple[Place, ...]

    @property
    def depth(self) -> int:
        return _depth(self.style)

    @property
    def shape(self) -> str:
        return HOLLOW.get(self.style.policy, "o") if self.style.control else self.style.marker


@dataclass(frozen=True)
class Band:
    """The area around a line, from the low ends of its intervals to the high ones; or a layer of a stack."""

    style: LineStyle
    outline: tuple[Place, ...]
    opacity: float = FAINT
    depth: int = BEHIND

    @classmethod
    def between(
        cls,
        style: LineStyle,
        x: tuple[float, ...],
        low: tuple[float, ...],
        high: tuple[float, ...],
        opacity: float = FAINT,
    ) -> "Band":
        return cls(style, (*zip(x, low, strict=True), *reversed(list(zip(x, high, strict=True)))), opacity)


@dataclass(frozen=True)
class Region:
    """A rectangle that is set off."""

    low: Place  # its lower left corner
    high: Place  # its upper right corner
    depth: int = BEHIND


Mark = PolicyLine | Dots | Band | Region


def _depth(style: LineStyle) -> int:
    """Returns the depth of a line: lines of controls lie under those of methods."""
    return 2 if style.control else 3
