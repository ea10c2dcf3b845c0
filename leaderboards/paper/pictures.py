"""Declares the figures that go to paper: panels with the drawings and maps of pages, and with
distributions, which only print has."""

from dataclasses import dataclass

from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Region
from leaderboards.rendering.style import LineStyle
from leaderboards.rendering.templating import HeatMap


@dataclass(frozen=True)
class Box:
    """The values of one policy, or of one kind of answers, at one place of the axis."""

    place: str
    style: LineStyle
    values: tuple[float, ...]


@dataclass(frozen=True)
class Distribution:
    """Boxes side by side: the middle line is the median, the widest part holds half of the values,
    and each narrower part half of the rest."""

    across: str  # title of the horizontal axis
    up: str  # title of the vertical one
    boxes: tuple[Box, ...]
    ends: tuple[float, float] | None = None  # between which every value lies, if anything bounds it


Printable = Drawing | HeatMap | Distribution


@dataclass(frozen=True)
class Panel:
    title: str  # stands above it where a figure has several
    picture: Printable


@dataclass(frozen=True)
class PaperFigure:
    """One picture, or a grid of small multiples."""

    name: str  # ``figures --only`` chooses it by this
    stem: str  # of its files
    heading: str
    panels: tuple[Panel, ...]
    columns: int = 1  # panels beside one another, on paper that is wide enough

    @classmethod
    def of(cls, name: str, stem: str, heading: str, picture: Printable) -> "PaperFigure":
        """Makes a figure of one picture."""
        return cls(name, stem, heading, (Panel("", picture),))


def legend_styles(picture: Printable) -> list[LineStyle]:
    """Returns the styles that a legend explains, each once, in the order in which they are
    drawn."""
    if isinstance(picture, HeatMap):
        return []
    if isinstance(picture, Distribution):
        return list(dict.fromkeys(box.style for box in picture.boxes))
    return list(dict.fromkeys(mark.style for mark in picture.marks if not isinstance(mark, Region)))
