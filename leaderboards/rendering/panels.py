"""Panels of a study: lines over what was asked, and paths in a plane."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Band, Frame, Mark, PolicyLine, Region
from leaderboards.rendering.style import LineStyle

Place = tuple[float, float]


@dataclass(frozen=True)
class BandedLine:
    """A line through places, with a band."""

    style: LineStyle
    places: tuple[Place, ...]  # in the order in which they are joined
    low: tuple[float, ...] = ()  # the ends of the band, in the second coordinate; without one, nothing
    high: tuple[float, ...] = ()


def panel(
    paths: Sequence[BandedLine],
    horizontal: Axis,
    vertical: Axis,
    title: str,
    salt: str,
    shaded: tuple[Place, Place] | None = None,
) -> str:
    """Draws lines, with bands where there are intervals. ``shaded``: two corners of a region that is set off."""

    region = () if shaded is None else (Region(*shaded),)
    marks = (*region, *(mark for path in paths for mark in _marks(path)))
    return Drawing(Frame(horizontal, vertical), marks, title, salt).svg()


def fitted(paths: Sequence[BandedLine]) -> Axis:
    """Makes an upright axis of shares, from 0 to the highest that lines and bands reach."""
    return Axis.from_values("", [end for path in paths for end in (*(y for _, y in path.places), *path.high)], top=1.0)


def _marks(path: BandedLine) -> Iterator[Mark]:
    yield PolicyLine(path.style, path.places)
    if path.low:
        yield Band.between(path.style, tuple(x for x, _ in path.places), path.low, path.high)
