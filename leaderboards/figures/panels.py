"""Panels of a study: lines over what was asked, paths in a plane, and a map of layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import INK, Axis, Frame
from leaderboards.rendering.inline import svg_of
from leaderboards.rendering.marks import Band, Mark, PolicyLine, Region
from leaderboards.rendering.style import LineStyle
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

seaborn = LazyModule("seaborn")  # its import takes a tenth of a second, and most sites have no such drawing
Place = tuple[float, float]
MAP_COLOUR = "#1858c8"


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


def layer_map(shares: NDArray[np.float64], columns: Sequence[str], axis: str, title: str, salt: str) -> str:
    """Draws differences in [-1, 1], shape (layers, columns), the first layer at the bottom."""

    def draw(axes: "Axes") -> None:
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
        axes.tick_params(axis="y", labelrotation=0)
        axes.set_xlabel(axis, color=INK, labelpad=4)
        axes.set_ylabel("layer", color=INK, labelpad=4)

    return svg_of(draw, title, salt)


def share_map(
    shares: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    axes_titles: tuple[str, str],
    title: str,
    salt: str,
) -> str:
    """Shares, shape (rows, columns), with their percent in the cells; the first row at the bottom. ``axes_titles``:
    below and beside."""

    def draw(axes: "Axes") -> None:
        seaborn.heatmap(
            shares,
            ax=axes,
            vmin=0,
            vmax=1,
            cmap=seaborn.light_palette(MAP_COLOUR, as_cmap=True),
            cbar=False,
            annot=100 * shares,
            fmt=".0f",
            linewidths=1,
            xticklabels=list(columns),
            yticklabels=list(rows),
        )
        axes.invert_yaxis()
        axes.tick_params(colors=INK, length=0, pad=4)
        axes.tick_params(axis="y", rotation=0)
        axes.set_xlabel(axes_titles[0], color=INK, labelpad=4)
        axes.set_ylabel(axes_titles[1], color=INK, labelpad=4)

    return svg_of(draw, title, salt)


def _marks(path: BandedLine) -> Iterator[Mark]:
    yield PolicyLine(path.style, path.places)
    if path.low:
        yield Band.between(path.style, tuple(x for x, _ in path.places), path.low, path.high)
