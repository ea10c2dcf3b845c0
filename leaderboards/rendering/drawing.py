"""Drawings: a frame with marks on it, as a page has it, and plots, whose points tell their numbers.
The same values give the same bytes."""

import hashlib
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
# A curve is about as wide as a phone, so that its text is of one size on a phone and in a row of
# three. In pixels from the upper left corner: its size, and where its axes lie.
WIDTH, HEIGHT = 324.0, 237.6
LEFT, TOP, RIGHT, BOTTOM = 27.54, 7.128, 317.52, 207.9
LINE_MARKER, DOT_MARKER, HOLLOW_MARKER = 4.2, 5.0, 4.0  # pixels across


def pixel_of(frame: Frame, place: Place) -> Place:
    """Returns where a place of the frame is in the ``viewBox``, from its upper left corner."""
    across, up = frame.horizontal.share(place[0]), frame.vertical.share(place[1])
    return LEFT + (RIGHT - LEFT) * across, BOTTOM - (BOTTOM - TOP) * up


def _mark(frame: Frame, mark: Mark, prefix: str, marked: set[str]) -> str:
    """Writes a mark. ``prefix``: of the ids of markers; ``marked``: those that are written
    already."""
    if isinstance(mark, Region):
        (left, below), (right, above) = mark.low, mark.high
        corners = ((left, below), (left, above), (right, above), (right, below))
        return f'<path d="{_path(frame, corners)}Z" fill="{INK}" fill-opacity=".12"/>'
    kind = "band" if isinstance(mark, Band) else "policy"
    match mark:
        case PolicyLine(style, places):
            content = _line(frame, style, places, prefix, marked)
        case Dots(style, places):
            content = _dots(frame, mark, places)
        case Band(style, outline, opacity):
            opacity_text = f"{opacity:g}".lstrip("0")
            content = f'<path d="{_path(frame, outline)}Z" fill="currentColor" fill-opacity="{opacity_text}"/>'
    return f'<g class="{kind}" data-policy="{style.index}" style="color:var({style.variable})">{content}</g>'


def _line(
    frame: Frame, style: LineStyle, places: Sequence[Place], prefix: str, marked: set[str]
) -> str:
    """Writes a line, and behind the first one of a policy its marker, which is shared by the
    others."""
    ends = f'stroke-dasharray="{style.dash_array}"' if style.dashes else 'stroke-linecap="square"'
    looks = f'fill="none" stroke="currentColor" stroke-width="{style.width:g}" {ends}'
    if not style.marker:
        return f'<path d="{_path(frame, places)}" {looks}/>'
    name = f"{prefix}{style.index}"
    line = f'<path d="{_path(frame, places)}" {looks} style="marker:url(#{name})"/>'
    if name in marked:
        return line
    marked.add(name)
    path = f'<path d="{marker_path(style.marker, LINE_MARKER)}" fill="currentColor"/>'
    return (
        f'{line}<marker id="{name}" markerUnits="userSpaceOnUse" overflow="visible">{path}</marker>'
    )


def _dots(frame: Frame, dots: Dots, places: Sequence[Place]) -> str:
    pixels = [pixel_of(frame, place) for place in places]
    if not dots.style.control:
        return f'<path d="{markers_path(dots.shape, DOT_MARKER, pixels)}" fill="currentColor"/>'
    outline = markers_path(dots.shape, HOLLOW_MARKER, pixels)
    join = ' stroke-linejoin="bevel"' if dots.shape == "*" else ""
    return f'<path d="{outline}" fill="none" stroke="currentColor" stroke-width=".9"{join}/>'


def _path(frame: Frame, places: Sequence[Place]) -> str:
    return "M" + "L".join(
        f"{pixel_text(x)} {pixel_text(y)}" for x, y in (pixel_of(frame, place) for place in places)
    )


@lru_cache(maxsize=32)
def _ground(frame: Frame) -> str:
    """Writes the frame alone: the title of the vertical axis stands above the drawing."""
    across = [
        (pixel_of(frame, (tick, frame.vertical.first))[0], f"{tick:g}")
        for tick in frame.horizontal.ticks_inside
    ]
    up = [
        (pixel_of(frame, (frame.horizontal.first, tick))[1], f"{tick:g}")
        for tick in frame.vertical.ticks_inside
    ]
    title, grid = (
        frame.horizontal.title,
        "".join(f"M{LEFT:g} {pixel_text(y)}H{RIGHT:g}" for y, _ in up),
    )
    return "\n".join(
        (
            f'<g stroke="{INK}" stroke-linecap="square"><path d="{grid}" stroke-opacity=".22" stroke-width=".6"/>'
            f'<path d="M{LEFT:g} {BOTTOM:g}H{RIGHT:g}" stroke-width=".8"/></g>',
            f'<g fill="{INK}" font-size="{TEXT}">',
            *([_text(LEFT + 3.48, 16.59, frame.corner, 'font-size="8.5"')] if frame.corner else []),
            '<g text-anchor="middle">',
            *(_text(x, BOTTOM + 11.83, text) for x, text in across),
            *([_text((LEFT + RIGHT) / 2, BOTTOM + 24.83, title)] if title else []),
            '</g><g text-anchor="end">',
            *(_text(LEFT - 5, y + 3.42, text) for y, text in up),
            "</g></g>",
        )
    )


def _text(x: float, y: float, text: str, looks: str = "") -> str:
    return f'<text x="{pixel_text(x)}" y="{pixel_text(y)}"{looks and " " + looks}>{html.escape(text)}</text>'


@dataclass(frozen=True)
class Drawing:
    frame: Frame
    marks: tuple[Mark, ...]  # those of one depth in the order in which they are drawn
    title: str
    salt: str  # of ids, different for each drawing of a page

    def svg(self) -> Markup:
        """Returns it as a part of a page, which has the legend."""
        prefix, marked = "m" + hashlib.sha256(self.salt.encode()).hexdigest()[:5], set[str]()
        above = "\n".join(
            _mark(self.frame, mark, prefix, marked) for mark in sorted(self.marks, key=depth)
        )
        return Markup(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img">'
            f"<title>{html.escape(self.title)}</title>\n{_ground(self.frame)}\n{above}\n</svg>\n"
        )


@dataclass(frozen=True)
class Spot:
    index: int  # of the line style of its policy
    x: float  # in the units of the axes
    y: float
    level: str  # what was asked there
    lines: tuple[str, ...]  # the numbers, to be read below one another


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
        places = [pixel_of(self.drawing.frame, (spot.x, spot.y)) for spot in self.spots]
        counts = Counter(text for spot in self.spots for text in (spot.level, *spot.lines))
        numbers = {
            text: number for number, text in enumerate(text for text in counts if counts[text] > 1)
        }
        return as_data(
            {
                "names": {str(index): name for index, name in self.names.items()},
                "texts": [text.replace(INTERVAL, "\t") for text in numbers],
                "spots": [
                    [
                        *(spot.index, round(x, 1), round(y, 1)),
                        *(
                            numbers.get(text, text.replace(INTERVAL, "\t"))
                            for text in (spot.level, *spot.lines)
                        ),
                    ]
                    for spot, (x, y) in zip(self.spots, places, strict=True)
                ],
            }
        )


def numbers(measure: Measure, row: SummaryRow) -> tuple[str, ...]:
    """Returns the value of a row and its interval, if it has one."""
    interval, text = measure.interval(row), measure.text(measure.value(row))
    return (
        (text, f"{INTERVAL}{interval_text(interval, measure.factor, measure.digits)}")
        if interval
        else (text,)
    )
