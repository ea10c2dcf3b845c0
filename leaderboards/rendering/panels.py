"""Panels of a study: lines over what was asked, paths in a plane, and estimates with their intervals."""

import hashlib
import html
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import INK, Axis, Band, Frame, Mark, PolicyLine, Region
from leaderboards.rendering.printed import figures, print_settings
from leaderboards.rendering.style import LineStyle
from leaderboards.statistics.bootstrap import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = tuple[float, float]
SIZE = (4.5, 3.3)  # inches, those of the other drawings of a page
PLACE = (0.085, 0.125, 0.895, 0.845)  # of the axes in it: left, bottom, width, height
INCH = 72  # in the units of an SVG
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
DOTS_PLACE = (0.36, 0.125, 0.62, 0.845)  # the same of dots, whose names stand left of them
APART = 0.24  # of a line: from one series to the next


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


def dots_by_name(
    names: Sequence[str],
    series: Mapping[LineStyle, Sequence[Estimate | None]],
    axis: str,
    ends: tuple[float, float],
    title: str,
    salt: str,
) -> str:
    """Draws for each name an estimate of each series, the first name at the top. ``series``: by style, in the order of
    the names; None where there is no value. ``ends``: what the axis holds at least."""

    def draw(axes: "Axes") -> None:
        axes.set_position(DOTS_PLACE)
        for number, (style, estimates) in enumerate(series.items()):
            shift = APART * (number - (len(series) - 1) / 2)
            for row, estimate in enumerate(estimates):
                if estimate is not None:
                    _draw_estimate(axes, estimate, row + shift, style)
        for end in (0.0, 1.0):
            axes.axvline(end, color=INK, linewidth=0.6, alpha=0.4, zorder=1)
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, ends[0]), max(high, ends[1]))
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), list(names))
        axes.tick_params(colors=INK, length=0, pad=4)
        axes.set_xlabel(axis, color=INK, labelpad=4)
        axes.spines[:].set_visible(False)

    svg = svg_of(draw, title, salt)
    for style in series:
        svg = svg.replace(style.colours[0], f"var({style.variable}, {style.colours[0]})")  # another one on dark pages
    return svg


def _draw_estimate(axes: "Axes", estimate: Estimate, height: float, style: LineStyle) -> None:
    colour = style.colours[0]
    if estimate.interval is not None:
        axes.plot(estimate.interval, (height, height), color=colour, linewidth=1.6, zorder=2)
    axes.plot(estimate.mean, height, marker=style.marker or "o", color=colour, markersize=5, zorder=3)


def svg_of(draw: Callable[["Axes"], None], title: str, salt: str) -> str:
    """Returns the drawing as a part of a page. ``salt``: different for each drawing of a page."""
    with print_settings(salt):
        figure = figures.Figure(figsize=SIZE)
        draw(figure.add_axes(PLACE))
        body = _body(figure, salt).replace(INK, f"var(--ink-curve, {INK})")
    box = f"0 0 {INCH * SIZE[0]:g} {INCH * SIZE[1]:g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img">'
        f"<title>{html.escape(title)}</title>\n{body}\n</svg>\n"
    )


def _body(figure: "Figure", salt: str) -> str:
    """Returns the drawing alone: no prologue, no size, and ids that no other drawing has."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
    svg = buffer.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")].strip()
    body = body.replace("xlink:href=", "href=")
    prefix = "d" + hashlib.sha256(salt.encode()).hexdigest()[:6]
    needed = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda match: f' id="{prefix}{match[1]}"' if match[1] in needed else "", body)
    body = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}", body)
    # The size of the text stays, its typeface is the page's. Matplotlib's style element would reach all of the page.
    body = re.sub(r" font-family: [^;\"]+;", "", body)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"\s+", " ", re.sub(r"<g/>", "", body))
    body = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", body)
    return re.sub(r"(\d\.\d\d)\d+", r"\1", body)  # hundredths of a pixel are enough
