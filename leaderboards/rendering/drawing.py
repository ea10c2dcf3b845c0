"""Drawings as SVG text to stand inside a page: what all figures share.

Colours are style-sheet variables with a fallback, so that a page can set them for light and for dark. Text stays text
and takes the page's typeface. The same values give the same bytes.
"""

import hashlib
import html
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon

from leaderboards.rendering.frames import INK, Frame
from leaderboards.rendering.paper import USUAL, Paper
from leaderboards.rendering.style import LineStyle

# Inches. A curve is about as wide as a phone, so that its text is of one size on a phone and in a row of three.
SIZE = (4.5, 3.3)
SHAPE = 0.62  # of a printed figure without its legend, its height for a width of 1
LEGEND_LINE = 0.19  # inches
INCH = 72  # in the units of an SVG
DOTS = 300  # for an inch of print
PLACE = (0.085, 0.125, 0.895, 0.845)  # of the axes in it: left, bottom, width, height
HOLLOW = {"full": "*", "oracle": "o", "random": "s", "recency": "D"}
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


@dataclass(frozen=True)
class Drawing:
    """A drawing on a frame, for a page or for print."""

    frame: Frame
    draw: Callable[[Axes], None]  # puts its lines and points on the frame
    title: str
    salt: str  # different for each drawing of a page
    colours: Mapping[str, str]  # by colour, the variable that stands for it in a page

    def svg(self) -> str:
        """As a part of a page, which has the legend."""
        figure, axes = _paper(self.frame)
        with matplotlib.rc_context(_settings(self.salt)):
            self.draw(axes)
            above = _body(figure, self.salt)
            for artist in (*axes.lines, *axes.patches, *axes.collections, *axes.texts):
                artist.remove()
        return _as_part_of_a_page(_ground(self.frame) + above, self.title, self.colours)

    def save(self, path: Path, heading: str, paper: Paper = USUAL) -> None:
        """For print, with a legend of what has a label; the format is that of the suffix: svg, png or pdf."""
        with printing(self.salt):
            figure = Figure(layout="constrained")
            axes = figure.add_subplot()
            self.frame.dress(axes)
            self.draw(axes)
            axes.set_title(paper.heading(heading), loc="left", color=INK, fontsize="medium")
            handles, labels = axes.get_legend_handles_labels()
            lines = math.ceil(len(labels) / paper.legend_columns)
            figure.set_size_inches(paper.width, 0.5 + SHAPE * paper.width + LEGEND_LINE * lines)
            looks: Any = {"loc": "outside lower center", "ncols": paper.legend_columns, "frameon": False}
            figure.legend(handles, labels, **looks)
            figure.savefig(path, dpi=DOTS)

    def places(self, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Returns where points of the frame are in the ``viewBox`` of :meth:`svg`, from its upper left corner."""
        if not points:
            return []
        _, axes = _paper(self.frame)
        shares = (axes.transScale + axes.transLimits).transform(points)
        left, bottom, width, height = PLACE
        across, down = (INCH * size for size in SIZE)
        return [(across * (left + width * x), down * (1 - bottom - height * y)) for x, y in shares]


# Making axes and laying out their ticks takes longer than a dozen of lines, and a page has many drawings on few frames.
@lru_cache(maxsize=16)
def _paper(frame: Frame) -> tuple[Figure, Axes]:
    """Axes of the frame's scales that show nothing by themselves: a drawing leaves them as they were."""
    with matplotlib.rc_context(_settings("")):
        figure = Figure(figsize=SIZE)
        axes = figure.add_axes(PLACE)
        frame.scale(axes)
        axes.set_axis_off()
    return figure, axes


@lru_cache(maxsize=16)
def _ground(frame: Frame) -> str:
    """The frame alone, as the body of an SVG."""
    salt = f"{frame}"
    with matplotlib.rc_context(_settings(salt)):
        figure = Figure(figsize=SIZE)
        frame.dress(figure.add_axes(PLACE))
        return _body(figure, salt)


def drawn(draw: Callable[[Axes], None], title: str, salt: str) -> str:
    """Draws what brings its own axes, as a part of a page."""
    with matplotlib.rc_context(_settings(salt)):
        figure = Figure(figsize=SIZE)
        draw(figure.add_axes(PLACE))
        return _as_part_of_a_page(_body(figure, salt), title, {})


# What follows are shapes without the axes' own methods, which also guess units and limits, and take longer for it.


def draw_line(axes: Axes, style: LineStyle, x: Sequence[float], y: Sequence[float], label: str | None = None) -> None:
    """A line in the style of its policy, by which the page finds it."""
    line = Line2D(
        x,
        y,
        color=style.colours[0],
        linestyle=(0, style.dashes) if style.dashes else "-",
        linewidth=style.width,
        marker=style.marker or None,
        markersize=4.2,
        markeredgewidth=0,
        clip_on=False,
        zorder=2 if style.control else 3,
        gid=f"policy:{style.index}",
        label=label or "_",
    )
    axes.add_artist(line)


def draw_dots(axes: Axes, style: LineStyle, x: Sequence[float], y: Sequence[float], label: str | None = None) -> None:
    """Points of a policy that are joined by nothing; those of controls are hollow."""
    looks: Any = {"marker": HOLLOW.get(style.policy, "o"), "fillstyle": "none", "markersize": 4, "markeredgewidth": 0.9}
    if not style.control:
        looks = {"marker": style.marker, "markersize": 5.0, "markeredgewidth": 0}
    dots = Line2D(x, y, linestyle="", color=style.colours[0], clip_on=False, gid=f"policy:{style.index}", **looks)
    dots.set_zorder(2 if style.control else 3)
    dots.set_label(label or "_")
    axes.add_artist(dots)


def draw_band(axes: Axes, style: LineStyle, x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
    """Around a line, from the low ends of its intervals to the high ones."""
    outline = [*zip(x, low, strict=True), *reversed(list(zip(x, high, strict=True)))]
    band = Polygon(outline, facecolor=style.colours[0], alpha=0.08, linewidth=0, clip_on=False, zorder=1)
    band.set_gid(f"band:{style.index}")
    axes.add_artist(band)


def draw_cliff(
    axes: Axes, style: LineStyle, place: tuple[float, float], ends: tuple[float | None, float | None], clear: bool
) -> None:
    """A ring on a line where it breaks off, and, across it, how far that place is uncertain; without that, and faint,
    where it may not break off at all."""
    x, y = place
    looks: Any = {"color": style.colours[0], "clip_on": False, "zorder": 4, "gid": f"cliff:{style.index}"}
    ring = Line2D([x], [y], marker="o", markersize=9, fillstyle="none", linestyle="", **looks)
    axes.add_artist(ring)
    if not clear:
        ring.set_alpha(0.45)
        return
    low, high = ends
    if low is not None and high is not None and low < high:
        axes.add_artist(Line2D([low, high], [y, y], marker="|", markersize=5, linewidth=0.8, **looks))


def printing(salt: str) -> AbstractContextManager[None]:
    """The settings in which a figure is made and saved."""
    return matplotlib.rc_context(_settings(salt))


def _settings(salt: str) -> Any:
    """Matplotlib's settings for one drawing; the salt makes its ids the same in every process."""
    return {
        "svg.fonttype": "none",
        "pdf.fonttype": 42,  # TrueType, whole: journals refuse the outlines that are the default
        "svg.hashsalt": salt,
        "font.size": 9.0,
        "axes.linewidth": 0.8,
        "path.simplify": False,
    }


def _body(figure: Figure, salt: str) -> str:
    """The drawing alone: no prologue, no size, and ids that no other drawing has."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
    svg = buffer.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")].strip()
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r'id="(policy|band|cliff):(\d+)"', r'class="\1" data-policy="\2"', body)
    prefix = "d" + hashlib.sha256(salt.encode()).hexdigest()[:6]  # short: it stands at every marker
    needed = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in needed else "", body)
    body = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}", body)
    # The size of the text stays, its typeface is the page's. Matplotlib's style element would reach all of the page.
    body = re.sub(r" font-family: [^;\"]+;", "", body)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"\s+", " ", re.sub(r"<g/>", "", body))
    # The markers of a line say once what they look like.
    body = re.sub(r'<g> ((?:<use [^>]* style="([^"]*)"/> )+)</g>', _hoisted, body)
    body = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", body)
    return re.sub(r"(\d\.\d\d)\d+", r"\1", body)  # hundredths of a pixel are enough


def _hoisted(found: re.Match[str]) -> str:
    markers, style = found[1], found[2]
    alike = markers.count("<use") == markers.count(f' style="{style}"/>')
    return f'<g style="{style}"> ' + markers.replace(f' style="{style}"', "") + "</g>" if alike else found[0]


def _as_part_of_a_page(body: str, title: str, colours: Mapping[str, str]) -> str:
    """Colours as variables, and a name."""
    for colour, variable in {**colours, INK: "--ink-curve"}.items():
        body = body.replace(colour, f"var({variable}, {colour})")
    box = f"0 0 {INCH * SIZE[0]:g} {INCH * SIZE[1]:g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img">'
        f"<title>{html.escape(title)}</title>\n{body}\n</svg>\n"
    )
