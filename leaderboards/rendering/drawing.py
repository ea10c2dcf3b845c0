"""Drawings: a frame with marks on it, for a page or for print, and plots, whose points tell their numbers. The same
values give the same bytes."""

import hashlib
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from markupsafe import Markup

from leaderboards.aggregate.row import SummaryRow
from leaderboards.metrics import Measure
from leaderboards.rendering.frames import Band, Dots, Frame, Mark, Place, PolicyLine, Region
from leaderboards.rendering.printed import USUAL, Paper, save
from leaderboards.rendering.style import LineStyle, marker_path, pixel_text
from leaderboards.rendering.templating import as_data
from leaderboards.statistics.text import interval_text

# Colours are style-sheet variables, so that a page can set them for light and for dark. Text stays text and takes the
# page's typeface. Places have tenths of a pixel. The marks look as matplotlib draws them in print, which takes ten
# times as long and three times the bytes.

INK = "var(--ink-curve)"
INTERVAL = "95 % interval "
TEXT = 9  # pixels
LINE_MARKER, DOT_MARKER, HOLLOW_MARKER = 4.2, 5.0, 4.0  # pixels across


def part_of_a_page(frame: Frame, marks: Sequence[Mark], title: str, salt: str) -> str:
    """Writes a frame and its marks; the page has the legend. ``salt``: makes ids that no other drawing of it has."""
    ids = _Markers("m" + hashlib.sha256(salt.encode()).hexdigest()[:5])
    above = "\n".join(_mark(frame, mark, ids) for mark in sorted(marks, key=lambda mark: mark.depth))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {frame.box.width:g} {frame.box.height:g}" role="img">'
        f"<title>{html.escape(title)}</title>\n{_ground(frame)}\n{above}\n</svg>\n"
    )


def pixel_of(frame: Frame, place: Place) -> Place:
    """Returns where a place of the frame is in the ``viewBox``, from its upper left corner."""
    (across, up), box = frame.share(place), frame.box
    return box.left + (box.right - box.left) * across, box.bottom - (box.bottom - box.top) * up


class _Markers:
    """The markers of a drawing, each written where its policy has its first line."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.written: set[str] = set()

    def of(self, style: LineStyle) -> tuple[str, str]:
        """Returns the id of a policy's marker, and its definition, if it is still to be written."""
        name = f"{self.prefix}{style.index}"
        if name in self.written:
            return name, ""
        self.written.add(name)
        (right, down), outline = marker_path(style.marker, LINE_MARKER)
        path = f'<path d="M{pixel_text(right, 2)} {pixel_text(down, 2)}{outline}" fill="currentColor"/>'
        return name, f'<marker id="{name}" markerUnits="userSpaceOnUse" overflow="visible">{path}</marker>'


def _mark(frame: Frame, mark: Mark, markers: _Markers) -> str:
    match mark:
        case PolicyLine(style, places):
            return _group("policy", style, _line(frame, style, places, markers))
        case Dots(style, places):
            return _group("policy", style, _dots(frame, mark, places))
        case Band(style, outline, opacity):
            opacity_text = f"{opacity:g}".lstrip("0")
            path = f'<path d="{_path(frame, outline)}Z" fill="currentColor" fill-opacity="{opacity_text}"/>'
            return _group("band", style, path)
        case Region(low, high):
            corners = (low, (low[0], high[1]), high, (high[0], low[1]))
            return f'<path d="{_path(frame, corners)}Z" fill="{INK}" fill-opacity=".12"/>'


def _group(kind: str, style: LineStyle, content: str) -> str:
    return f'<g class="{kind}" data-policy="{style.index}" style="color:var({style.variable})">{content}</g>'


def _line(frame: Frame, style: LineStyle, places: Sequence[Place], markers: _Markers) -> str:
    ends = f'stroke-dasharray="{style.dash_array}"' if style.dashes else 'stroke-linecap="square"'
    looks = f'fill="none" stroke="currentColor" stroke-width="{style.width:g}" {ends}'
    if not style.marker:
        return f'<path d="{_path(frame, places)}" {looks}/>'
    name, definition = markers.of(style)
    return f'<path d="{_path(frame, places)}" {looks} style="marker:url(#{name})"/>{definition}'


def _dots(frame: Frame, dots: Dots, places: Sequence[Place]) -> str:
    if not dots.style.control:
        return f'<path d="{_outlines(frame, dots.shape, DOT_MARKER, places)}" fill="currentColor"/>'
    outline = _outlines(frame, dots.shape, HOLLOW_MARKER, places)
    join = ' stroke-linejoin="bevel"' if dots.shape == "*" else ""
    return f'<path d="{outline}" fill="none" stroke="currentColor" stroke-width=".9"{join}/>'


def _path(frame: Frame, places: Sequence[Place]) -> str:
    return "M" + "L".join(f"{pixel_text(x)} {pixel_text(y)}" for x, y in (pixel_of(frame, place) for place in places))


def _outlines(frame: Frame, shape: str, size: float, places: Sequence[Place]) -> str:
    """Writes the outlines of all dots of a policy as one path."""
    (right, down), outline = marker_path(shape, size)
    starts = ((x + right, y + down) for x, y in (pixel_of(frame, place) for place in places))
    return "".join(f"M{pixel_text(x)} {pixel_text(y)}{outline}" for x, y in starts)


@lru_cache(maxsize=32)
def _ground(frame: Frame) -> str:
    """Writes the frame alone: the title of the vertical axis stands above the drawing."""
    across = [(pixel_of(frame, (tick, frame.vertical.first))[0], f"{tick:g}") for tick in frame.horizontal.ticks_inside]
    up = [(pixel_of(frame, (frame.horizontal.first, tick))[1], f"{tick:g}") for tick in frame.vertical.ticks_inside]
    box, title = frame.box, frame.horizontal.title
    grid = "".join(f"M{box.left:g} {pixel_text(y)}H{box.right:g}" for y, _ in up)
    return "\n".join(
        (
            f'<g stroke="{INK}" stroke-linecap="square"><path d="{grid}" stroke-opacity=".22" stroke-width=".6"/>'
            f'<path d="M{box.left:g} {box.bottom:g}H{box.right:g}" stroke-width=".8"/></g>',
            f'<g fill="{INK}" font-size="{TEXT}">',
            *([_text(box.left + 3.48, 16.59, frame.corner, 'font-size="8.5"')] if frame.corner else []),
            '<g text-anchor="middle">',
            *(_text(x, box.bottom + 11.83, text) for x, text in across),
            *([_text((box.left + box.right) / 2, box.bottom + 24.83, title)] if title else []),
            '</g><g text-anchor="end">',
            *(_text(box.left - 5, y + 3.42, text) for y, text in up),
            "</g></g>",
        )
    )


def _text(x: float, y: float, text: str, looks: str = "") -> str:
    return f'<text x="{pixel_text(x)}" y="{pixel_text(y)}"{looks and " " + looks}>{html.escape(text)}</text>'


@dataclass(frozen=True)
class Drawing:
    """A drawing and its name."""

    frame: Frame
    marks: tuple[Mark, ...]  # those of one depth in the order in which they are drawn
    title: str
    salt: str  # of ids, different for each drawing of a page

    def svg(self) -> str:
        """Returns it as a part of a page, which has the legend."""
        return part_of_a_page(self.frame, self.marks, self.title, self.salt)

    def places(self, points: Sequence[Place]) -> list[Place]:
        """Returns where points of the frame are in the ``viewBox`` of :meth:`svg`, from its upper left corner."""
        return [pixel_of(self.frame, point) for point in points]

    def save(self, path: Path, heading: str, paper: Paper = USUAL) -> None:
        """Draws it for print, with a legend; the format is that of the suffix: svg, png or pdf."""
        save(self.frame, self.marks, self.salt, path, heading, paper)


@dataclass(frozen=True)
class Spot:
    """A point of a plot that tells its numbers."""

    index: int  # of the line style of its policy
    x: float  # in the units of the axes
    y: float
    level: str  # what was asked there
    lines: tuple[str, ...]  # the numbers, to be read below one another


@dataclass(frozen=True)
class Plot:
    """A drawing with the numbers of its points."""

    drawing: Drawing
    heading: str  # over the drawing in print
    spots: tuple[Spot, ...]
    names: Mapping[int, str]  # by the index of a line style, the policy
    note: str = ""  # what has to be known to read it

    def svg(self) -> Markup:
        return Markup(self.drawing.svg())

    def data(self) -> Markup:
        """Returns the points for the page's script; places are those of the drawing's ``viewBox``. A text of several
        points is told once, and by its number at each; :data:`INTERVAL` is a tab."""
        places = self.drawing.places([(spot.x, spot.y) for spot in self.spots])
        counts = Counter(text for spot in self.spots for text in (spot.level, *spot.lines))
        numbers = {text: number for number, text in enumerate(text for text in counts if counts[text] > 1)}
        return as_data(
            {
                "names": {str(index): name for index, name in self.names.items()},
                "texts": [text.replace(INTERVAL, "\t") for text in numbers],
                "spots": [
                    [
                        *(spot.index, round(x, 1), round(y, 1)),
                        *(numbers.get(text, text.replace(INTERVAL, "\t")) for text in (spot.level, *spot.lines)),
                    ]
                    for spot, (x, y) in zip(self.spots, places, strict=True)
                ],
            }
        )

    def save(self, path: Path, paper: Paper = USUAL) -> None:
        self.drawing.save(path, self.heading, paper)


def numbers(measure: Measure, row: SummaryRow) -> tuple[str, ...]:
    """Returns the value of a row and its interval, if it has one."""
    interval = measure.interval(row)
    text = measure.text(measure.value(row))
    if interval is None:
        return (text,)
    return text, f"{INTERVAL}{interval_text(interval, measure.factor, measure.digits)}"
