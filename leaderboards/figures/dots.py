"""Draws estimates with their intervals, a line for each name."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leaderboards.rendering.frames import INK
from leaderboards.rendering.inline import svg_of
from leaderboards.rendering.style import LineStyle
from leaderboards.statistics.bootstrap import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACE = (0.36, 0.125, 0.62, 0.845)  # of the axes in the drawing: names stand left of them
APART = 0.24  # of a line: from one series to the next


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
        axes.set_position(PLACE)
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
