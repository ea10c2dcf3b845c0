"""Panels of a study: lines over what was asked, paths in a plane, and a map of layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from leaderboards.rendering.drawing import Drawing, draw_band, draw_line, drawn
from leaderboards.rendering.frames import INK, Axis, Frame
from leaderboards.rendering.style import LineStyle
from policies.declaration.lazy import LazyModule

seaborn = LazyModule("seaborn")  # its import takes a tenth of a second, and most sites have no such drawing
Place = tuple[float, float]


@dataclass(frozen=True)
class Path:
    """A line through places, with a band."""

    style: LineStyle
    places: tuple[Place, ...]  # in the order in which they are joined
    low: tuple[float, ...] = ()  # the ends of the band, in the second coordinate; without one, nothing
    high: tuple[float, ...] = ()


def panel(
    paths: Sequence[Path],
    horizontal: Axis,
    vertical: Axis,
    title: str,
    salt: str,
    shaded: tuple[Place, Place] | None = None,
) -> str:
    """Lines, with bands where there are intervals. ``shaded``: two corners of a region that is set off."""

    def draw(axes: Axes) -> None:
        if shaded is not None:
            (left, bottom), (right, top) = shaded
            axes.fill_between([left, right], bottom, top, color=INK, alpha=0.12, linewidth=0)
        for path in paths:
            _draw(axes, path)

    colours = {path.style.colours[0]: path.style.variable for path in paths}
    return Drawing(Frame(horizontal, vertical), draw, title, salt, colours).svg()


def layer_map(shares: NDArray[np.float64], columns: Sequence[str], axis: str, title: str, salt: str) -> str:
    """Differences in [-1, 1], shape (layers, columns): the first layer at the bottom."""

    def draw(axes: Axes) -> None:
        seaborn.heatmap(
            shares,
            ax=axes,
            vmin=-1,
            vmax=1,
            cmap="vlag",
            cbar=False,
            xticklabels=list(columns),
            yticklabels=2,
            rasterized=False,
        )
        axes.invert_yaxis()
        axes.tick_params(colors=INK, length=0, pad=4)
        axes.set_xlabel(axis, color=INK, labelpad=4)
        axes.set_ylabel("layer", color=INK, labelpad=4)

    return drawn(draw, title, salt)


def _draw(axes: Axes, path: Path) -> None:
    x, y = [x for x, _ in path.places], [y for _, y in path.places]
    draw_line(axes, path.style, x, y)
    if path.low:
        draw_band(axes, path.style, x, path.low, path.high)
