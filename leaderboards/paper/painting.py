"""Draws pictures on axes by seaborn, which is imported only here: no page and no other command
waits for it.

Colours, markers and dashes are those of pages. What seaborn would compute itself (means, intervals)
is switched off: every number comes from the picture, which has it from the rows and sheets that
pages show.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pandas import DataFrame

from leaderboards.paper.pictures import Distribution, Printable
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import INK, Band, Dots, Frame, PolicyLine, Region, depth
from leaderboards.rendering.style import SERIES_COLOURS
from leaderboards.rendering.templating import HeatMap
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

seaborn = LazyModule("seaborn")  # its import takes over two seconds

LINE_MARKER, DOT_MARKER, HOLLOW_MARKER = 4.2, 5.0, 4.0  # points across
NUMBER_WIDTH = 0.32  # inches that a cell of a map needs for its number
NUMBER_HEIGHT = 0.12
TICK_WIDTH = 0.28  # inches that a tick needs for its number
Size = tuple[float, float]  # width and height of what the axes enclose, in inches
Painter = Callable[["Axes", Any, Size], None]


def paint(axes: "Axes", picture: Printable, size: Size) -> None:
    """Draws a picture of any kind, without a legend. ``size``: about how large it will be."""
    PAINTERS[type(picture)](axes, picture, size)
    legend = axes.get_legend()
    # Its handles stay, from which the figure makes one legend for all panels.
    if legend is not None:
        legend.remove()


def _paint_drawing(axes: "Axes", drawing: Drawing, size: Size) -> None:
    _dress(axes, drawing.frame, size)
    plain_lines, marked_lines = [], []
    bands, all_dots = [], []
    for mark in drawing.marks:
        match mark:
            case Region(low=(left, below), high=(right, above)):
                axes.fill_between([left, right], below, above, color=INK, alpha=0.12, linewidth=0)
            case Band():
                bands.append(mark)
            case Dots():
                all_dots.append(mark)
            case PolicyLine() if mark.style.marker:
                marked_lines.append(mark)
            case PolicyLine():
                plain_lines.append(mark)
    in_legend = {line.style for line in (*plain_lines, *marked_lines)}
    for band in bands:
        # An interval belongs to a line, which the legend has; the layer of a stack has no line.
        label = "_" if band.style in in_legend else band.style.label
        _paint_band(axes, band, label)
    # seaborn refuses a call with markers for some lines alone: controls have none.
    _paint_lines(axes, plain_lines)
    _paint_lines(axes, marked_lines)
    for dots in all_dots:
        _paint_dots(axes, dots)
    axes.set(xlabel=drawing.frame.horizontal.title, ylabel=drawing.frame.vertical.title)


def _paint_band(axes: "Axes", band: Band, label: str) -> None:
    x, y = zip(*band.outline, strict=True)
    axes.fill(
        x,
        y,
        label=label,
        zorder=depth(band),
        color=band.style.colours[0],
        alpha=band.opacity,
        linewidth=0,
        clip_on=False,
    )


def _dress(axes: "Axes", frame: Frame, size: Size) -> None:
    horizontal, vertical = frame.horizontal, frame.vertical
    if horizontal.doubling:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xlim(horizontal.first, horizontal.last)
    axes.set_ylim(vertical.first, vertical.last)
    shown = horizontal.ticks[:: _tick_step(len(horizontal.ticks), size)]
    axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axes.set_yticks(vertical.ticks, [f"{tick:g}" for tick in vertical.ticks])
    _lighten(axes)
    if frame.corner:
        axes.text(
            0.012,
            0.985,
            frame.corner,
            transform=axes.transAxes,
            color=INK,
            va="top",
            fontsize="small",
        )


def _tick_step(count: int, size: Size) -> int:
    """Returns how many ticks further the next number stands, so that they do not run into one
    another."""
    return max(1, math.ceil(count * TICK_WIDTH / size[0]))


def _lighten(axes: "Axes") -> None:
    """Leaves little ink beside the data: faint lines across, and one axis."""
    axes.grid(axis="y", color=INK, alpha=0.22, linewidth=0.6, clip_on=False)
    axes.set_axisbelow(True)
    seaborn.despine(ax=axes, left=True)


def _paint_lines(axes: "Axes", lines: Sequence[PolicyLine]) -> None:
    """Draws all lines at once; a line in pieces is one policy in the legend."""
    if not lines:
        return
    rows = []
    colours, dashes, markers, sizes = {}, {}, {}, {}
    for piece, line in enumerate(lines):
        style = line.style
        for x, y in line.places:
            rows.append((x, y, style.label, piece))
        colours[style.label] = style.colours[0]
        dashes[style.label] = style.dashes or ""
        markers[style.label] = style.marker
        sizes[style.label] = style.width
    seaborn.lineplot(
        DataFrame(rows, columns=["x", "y", "policy", "piece"]),
        x="x",
        y="y",
        **dict.fromkeys(("hue", "style", "size"), "policy"),
        units="piece",
        estimator=None,
        sort=False,  # a line through bytes held goes from level to level
        palette=colours,
        dashes=dashes,
        markers=markers if lines[0].style.marker else False,
        sizes=sizes,
        markersize=LINE_MARKER,
        markeredgewidth=0,
        zorder=max(map(depth, lines)),
        clip_on=False,
        ax=axes,
    )
    # seaborn leaves a line without places for each entry of the legend, in the corner of the
    # figure: room would be left for it.
    for drawn in axes.lines:
        drawn.set_in_layout(False)


def _paint_dots(axes: "Axes", dots: Dots) -> None:
    if not dots.places:
        return
    x, y = map(list, zip(*dots.places, strict=True))
    colour, hollow = dots.style.colours[0], dots.style.control
    looks = {
        "color": colour,
        "marker": dots.shape,
        "label": dots.style.label,
        "zorder": depth(dots),
        "clip_on": False,
    }
    size = HOLLOW_MARKER if hollow else DOT_MARKER
    seaborn.scatterplot(x=x, y=y, s=size**2, linewidth=0.9 if hollow else 0, ax=axes, **looks)
    if hollow:  # scatterplot fills whatever it is told
        axes.collections[-1].set(facecolor="none", edgecolor=colour)


def _paint_map(axes: "Axes", heat_map: HeatMap, size: Size) -> None:
    """Draws the tiles, the darker the higher, with their texts where there is room. What was not
    run is a dash."""
    names, heats = [], []
    for name, tiles in heat_map.rows:
        names.append(name)
        heats.append([float("nan") if tile is None else tile.heat for tile in tiles])
    seaborn.heatmap(
        DataFrame(heats, index=names, columns=list(heat_map.columns)),
        vmin=0,
        vmax=1,
        cmap=seaborn.light_palette(SERIES_COLOURS[0][0], as_cmap=True),
        cbar=False,  # the figure has one for all its maps
        linewidths=0.4,
        xticklabels=_tick_step(len(heat_map.columns), size),
        ax=axes,
    )
    axes.tick_params(length=0, labelrotation=0)
    axes.set(xlabel=heat_map.across, ylabel=heat_map.side)
    if (
        size[0] / len(heat_map.columns) >= NUMBER_WIDTH
        and size[1] / len(heat_map.rows) >= NUMBER_HEIGHT
    ):
        _paint_texts(axes, heat_map)


def _paint_texts(axes: "Axes", heat_map: HeatMap) -> None:
    for row, (_, tiles) in enumerate(heat_map.rows):
        for column, tile in enumerate(tiles):
            colour = "white" if tile is not None and tile.heat > 0.6 else INK
            text = "–" if tile is None else tile.text
            axes.text(
                column + 0.5,
                row + 0.5,
                text,
                ha="center",
                va="center",
                color=colour,
                fontsize="x-small",
            )


def _paint_distribution(axes: "Axes", distribution: Distribution, size: Size) -> None:
    rows: list[tuple[str, float, str]] = []
    colours: dict[str, str] = {}
    for box in distribution.boxes:
        label = box.style.label
        colours[label] = box.style.colours[0]
        for value in box.values:
            rows.append((box.place, value, label))
    places = list(dict.fromkeys(box.place for box in distribution.boxes))
    seaborn.boxenplot(
        DataFrame(rows, columns=["place", "value", "group"]),
        x="place",
        y="value",
        hue="group",
        order=places,
        hue_order=list(colours),
        palette=colours,
        saturation=1,
        linewidth=0.5,
        line_kws={"linewidth": 1.2, "color": "black"},
        flier_kws={"s": 4},
        ax=axes,
    )
    _lighten(axes)
    step = _tick_step(len(places), size)
    axes.set_xticks(range(0, len(places), step), places[::step])
    axes.axhline(0, color=INK, linewidth=0.8, zorder=0)
    if distribution.ends is not None:
        low, high = distribution.ends
        axes.set_ylim(low - 0.03 * (high - low), high + 0.03 * (high - low))
    axes.set(xlabel=distribution.across, ylabel=distribution.up)


PAINTERS: Mapping[type, Painter] = {
    Drawing: _paint_drawing,
    HeatMap: _paint_map,
    Distribution: _paint_distribution,
}
