"""Drawings: a frame with marks on it, as a page has it, and plots, whose points tell their numbers.
The same values give the same bytes."""

import hashlib
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from leaderboards.aggregate.row import SummaryRow
from leaderboards.metrics import Measure
from leaderboards.rendering.frames import Band, Dots, Frame, Mark, Place, PolicyLine, Region, depth
from leaderboards.rendering.style import LineStyle, marker_path, markers_path, pixel_text
from leaderboards.rendering.templating import as_data
from leaderboards.statistics.text import interval_text

# Colours are style-sheet variables, so that a page can set them for light and for dark. Text stays
# text and takes the page's typeface. Places have tenths of a pixel. The marks look as seaborn draws
# them in print (``paper``), which takes ten times as long and three times the bytes.

INK = "var(--ink-curve)"
INTERVAL = "95 % interval "
TEXT = 9  # pixels
SVG = "http://www.w3.org/2000/svg"
# A curve is about as wide as a phone, so that its text is of one size on a phone and in a row of
# three. In pixels from the upper left corner: its size, and where its axes lie.
WIDTH, HEIGHT = 324.0, 237.6
LEFT, TOP, RIGHT, BOTTOM = 27.54, 7.128, 317.52, 207.9
LINE_MARKER, DOT_MARKER, HOLLOW_MARKER = 4.2, 5.0, 4.0  # pixels across


def pixel_place(frame: Frame, place: Place) -> Place:
    """Returns where a place of the frame is in the ``viewBox``, from its upper left corner."""
    across = frame.horizontal.share(place[0])
    up = frame.vertical.share(place[1])
    return LEFT + (RIGHT - LEFT) * across, BOTTOM - (BOTTOM - TOP) * up


@dataclass(frozen=True)
class _Writer:
    """Writes the marks of one drawing as SVG."""

    frame: Frame
    prefix: str  # of the ids of markers
    written: set[str] = field(default_factory=set)  # the ids of the markers that are there already

    def write(self, mark: Mark) -> str:
        """Writes a mark."""
        if isinstance(mark, Region):
            return self._region(mark)
        kind = "policy"
        match mark:
            case PolicyLine(style, places):
                content = self._line(style, places)
            case Dots(style, places):
                content = _dots(self.frame, mark, places)
            case Band(style, outline, opacity):
                kind = "band"
                path = f"{_path(self.frame, outline)}Z"
                opacity_text = f"{opacity:g}".lstrip("0")
                content = f'<path d="{path}" fill="currentColor" fill-opacity="{opacity_text}"/>'
        looks = f'style="color:var({style.variable})"'
        return f'<g class="{kind}" data-policy="{style.index}" {looks}>{content}</g>'

    def _region(self, region: Region) -> str:
        left, below = region.low
        right, above = region.high
        corners = ((left, below), (left, above), (right, above), (right, below))
        return f'<path d="{_path(self.frame, corners)}Z" fill="{INK}" fill-opacity=".12"/>'

    def _line(self, style: LineStyle, places: Sequence[Place]) -> str:
        """Writes a line, and behind the first one of a policy its marker, which is shared by the
        others."""
        ends = 'stroke-linecap="square"'
        if style.dashes:
            ends = f'stroke-dasharray="{style.dash_array}"'
        looks = f'fill="none" stroke="currentColor" stroke-width="{style.width:g}" {ends}'
        path = _path(self.frame, places)
        if not style.marker:
            return f'<path d="{path}" {looks}/>'
        name = f"{self.prefix}{style.index}"
        line = f'<path d="{path}" {looks} style="marker:url(#{name})"/>'
        if name in self.written:
            return line
        self.written.add(name)
        outline = marker_path(style.marker, LINE_MARKER)
        attributes = f'id="{name}" markerUnits="userSpaceOnUse" overflow="visible"'
        return f'{line}<marker {attributes}><path d="{outline}" fill="currentColor"/></marker>'


def _dots(frame: Frame, dots: Dots, places: Sequence[Place]) -> str:
    pixels = [pixel_place(frame, place) for place in places]
    if not dots.style.control:
        outline = markers_path(dots.shape, DOT_MARKER, pixels)
        return f'<path d="{outline}" fill="currentColor"/>'
    outline = markers_path(dots.shape, HOLLOW_MARKER, pixels)
    join = ""
    if dots.shape == "*":
        join = ' stroke-linejoin="bevel"'
    return f'<path d="{outline}" fill="none" stroke="currentColor" stroke-width=".9"{join}/>'


def _path(frame: Frame, places: Sequence[Place]) -> str:
    corners = []
    for place in places:
        x, y = pixel_place(frame, place)
        corners.append(f"{pixel_text(x)} {pixel_text(y)}")
    return "M" + "L".join(corners)


@lru_cache(maxsize=32)
def _ground(frame: Frame) -> str:
    """Writes the frame alone: the title of the vertical axis stands above the drawing."""
    horizontal, vertical = frame.horizontal, frame.vertical
    numbers_across, numbers_up, grid = [], [], ""
    for tick in horizontal.ticks_inside:
        x, _ = pixel_place(frame, (tick, vertical.first))
        numbers_across.append(_text(x, BOTTOM + 11.83, f"{tick:g}"))
    for tick in vertical.ticks_inside:
        _, y = pixel_place(frame, (horizontal.first, tick))
        numbers_up.append(_text(LEFT - 5, y + 3.42, f"{tick:g}"))
        grid += f"M{LEFT:g} {pixel_text(y)}H{RIGHT:g}"
    lines = [
        f'<g stroke="{INK}" stroke-linecap="square">'
        f'<path d="{grid}" stroke-opacity=".22" stroke-width=".6"/>'
        f'<path d="M{LEFT:g} {BOTTOM:g}H{RIGHT:g}" stroke-width=".8"/></g>',
        f'<g fill="{INK}" font-size="{TEXT}">',
    ]
    if frame.corner:
        lines.append(_text(LEFT + 3.48, 16.59, frame.corner, ' font-size="8.5"'))
    lines.append('<g text-anchor="middle">')
    lines += numbers_across
    if horizontal.title:
        lines.append(_text((LEFT + RIGHT) / 2, BOTTOM + 24.83, horizontal.title))
    lines.append('</g><g text-anchor="end">')
    lines += numbers_up
    lines.append("</g></g>")
    return "\n".join(lines)


def _text(x: float, y: float, text: str, looks: str = "") -> str:
    return f'<text x="{pixel_text(x)}" y="{pixel_text(y)}"{looks}>{html.escape(text)}</text>'


@dataclass(frozen=True)
class Drawing:
    frame: Frame
    marks: tuple[Mark, ...]  # those of one depth in the order in which they are drawn
    title: str
    salt: str  # of ids, different for each drawing of a page

    def svg(self) -> Markup:
        """Returns it as a part of a page, which has the legend."""
        # Behind a letter, with which the id of an element has to begin.
        digest = hashlib.sha256(self.salt.encode()).hexdigest()
        writer = _Writer(self.frame, prefix="m" + digest[:5])
        in_order = sorted(self.marks, key=depth)
        marks = "\n".join(map(writer.write, in_order))
        return Markup(
            f'<svg xmlns="{SVG}" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img">'
            f"<title>{html.escape(self.title)}</title>\n{_ground(self.frame)}\n{marks}\n</svg>\n"
        )


@dataclass(frozen=True)
class Spot:
    index: int  # of the line style of its policy
    x: float  # in the units of the axes
    y: float
    level: str  # what was asked there
    lines: tuple[str, ...]  # the numbers, to be read below one another

    @property
    def texts(self) -> tuple[str, ...]:
        """Returns all that is read there: the level, then the numbers."""
        return self.level, *self.lines


@dataclass(frozen=True)
class Plot:
    drawing: Drawing
    heading: str  # over the drawing in print
    spots: tuple[Spot, ...]
    names: Mapping[int, str]  # by the index of a line style, the policy

    def data(self) -> Markup:
        """Returns the points for the page's script; places are those of the drawing's ``viewBox``.
        A text of several points is told once, and by its number at each; :data:`INTERVAL` is a
        tab."""
        counts: Counter[str] = Counter()
        for spot in self.spots:
            counts.update(spot.texts)
        repeated = [text for text, count in counts.items() if count > 1]
        places_of_texts = {text: place for place, text in enumerate(repeated)}
        spots = []
        for spot in self.spots:
            x, y = pixel_place(self.drawing.frame, (spot.x, spot.y))
            row: list[Any] = [spot.index, round(x, 1), round(y, 1)]
            for text in spot.texts:
                row.append(places_of_texts.get(text, _shortened(text)))
            spots.append(row)
        names = {str(index): name for index, name in self.names.items()}
        return as_data({"names": names, "texts": list(map(_shortened, repeated)), "spots": spots})


def _shortened(text: str) -> str:
    return text.replace(INTERVAL, "\t")


def numbers(measure: Measure, row: SummaryRow) -> tuple[str, ...]:
    """Returns the value of a row and its interval, if it has one."""
    value = measure.text(measure.value(row))
    interval = measure.interval(row)
    if not interval:
        return (value,)
    ends = interval_text(interval, measure.factor, measure.digits)
    return value, f"{INTERVAL}{ends}"
