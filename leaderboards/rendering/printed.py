"""Draws for print, by matplotlib, which is imported only here: a page does without it."""

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from leaderboards.errors import LeaderboardError
from leaderboards.rendering.frames import INK, Band, Frame, Mark, PolicyLine, Region, depth
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

matplotlib = LazyModule("matplotlib")  # its import takes a third of a second
backend_agg = LazyModule("matplotlib.backends.backend_agg")
figures = LazyModule("matplotlib.figure")
lines = LazyModule("matplotlib.lines")
patches = LazyModule("matplotlib.patches")

SHAPE = 0.62  # of a printed figure without its legend, its height for a width of 1
LEGEND_LINE = 0.19  # inches
DOTS = 300  # for an inch
INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
WIDTHS = (1.5, 30.0)  # inches, between which a figure can be read
LETTERS = 11.5  # of a heading, in an inch
MOST_COLUMNS = 4


@dataclass(frozen=True)
class Paper:
    """The width in inches, and whether a heading stands above the figure."""

    width: float = 6.0
    headed: bool = True

    @classmethod
    def parse(cls, width: str, headed: bool = True) -> Self:
        """Reads a width such as ``3.25in``, ``8cm`` or ``82mm``; raises :class:`LeaderboardError` for anything else."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(in|cm|mm)\s*", width)
        inches = float(match[1]) * INCHES[match[2]] if match else 0.0
        if not WIDTHS[0] <= inches <= WIDTHS[1]:
            raise LeaderboardError(f"'{width}' is no width of a figure: give one such as 3.25in, 8cm or 82mm")
        return cls(inches, headed)


USUAL = Paper()


def save(frame: Frame, marks: Sequence[Mark], salt: str, path: Path, heading: str, paper: Paper) -> None:
    """Draws with a legend of all policies; the format is that of the suffix: svg, png or pdf. ``salt``: makes ids that
    are the same in every process. Without a date, so that the same values give the same bytes."""
    settings = {
        "svg.fonttype": "none",
        "text.parse_math": False,  # a name with two dollars is no formula
        "pdf.fonttype": 42,  # TrueType, whole: journals refuse the outlines that are the default
        "svg.hashsalt": salt,
        "font.size": 9.0,
        "axes.linewidth": 0.8,
        "path.simplify": False,
    }
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    with matplotlib.rc_context(settings):
        figure = figures.Figure(layout="constrained")
        axes = figure.add_subplot()
        _dress(axes, frame)
        named: set[str] = set()
        for mark in marks:
            _add(axes, mark, named)
        axes.set_xlabel(_folded(frame.horizontal.title, paper.width), color=INK, labelpad=4)
        axes.set_ylabel(_folded(frame.vertical.title, SHAPE * paper.width), color=INK, labelpad=4)
        if paper.headed:
            axes.set_title(_folded(heading, paper.width), loc="left", color=INK, fontsize="medium")
        handles, labels = axes.get_legend_handles_labels()
        figure.set_size_inches(paper.width, SHAPE * paper.width)
        count = math.ceil(len(labels) / _add_legend(figure, handles, labels))
        figure.set_size_inches(paper.width, 0.5 + SHAPE * paper.width + LEGEND_LINE * count)
        figure.savefig(path, dpi=DOTS, metadata=undated)


def _add_legend(figure: "Figure", handles: Sequence[Any], labels: Sequence[str]) -> int:
    """Adds a legend with as many columns as are no wider than the figure, and returns how many."""
    renderer = backend_agg.FigureCanvasAgg(figure).get_renderer()
    for count in range(min(MOST_COLUMNS, len(labels)), 0, -1):
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=count, frameon=False)
        if count == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            break
        legend.remove()
    return count


def _folded(text: str, inches: float) -> str:
    """Breaks a text into lines that are no longer than so many inches."""
    return textwrap.fill(text, max(1, int(inches * LETTERS)))


def _dress(axes: "Axes", frame: Frame) -> None:
    horizontal, vertical = frame.horizontal, frame.vertical
    if horizontal.doubling:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xlim(horizontal.first, horizontal.last)
    axes.set_ylim(vertical.first, vertical.last)
    axes.set_xticks(horizontal.ticks, [f"{tick:g}" for tick in horizontal.ticks])
    axes.set_yticks(vertical.ticks, [f"{tick:g}" for tick in vertical.ticks])
    axes.tick_params(colors=INK, length=0, pad=5)
    axes.grid(axis="y", color=INK, alpha=0.22, linewidth=0.6, clip_on=False)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    if frame.corner:
        axes.text(0.012, 0.985, frame.corner, transform=axes.transAxes, color=INK, va="top", fontsize=8.5)


def _add(axes: "Axes", mark: Mark, named: set[str]) -> None:
    """Puts a mark on the axes, whose own methods would also guess units and limits. ``named``: the policies that the
    legend has already: a line that is in pieces stands there once."""
    if isinstance(mark, Region):
        (left, below), (right, above) = mark.low, mark.high
        axes.fill_between([left, right], below, above, color=INK, alpha=0.12, linewidth=0)
        return
    style = mark.style
    if isinstance(mark, Band):
        looks: dict[str, Any] = {"facecolor": style.colours[0], "alpha": mark.opacity, "linewidth": 0, "clip_on": False}
        band = patches.Polygon(mark.outline, zorder=depth(mark), **looks)
        band.set_gid(f"band:{style.index}")
        axes.add_artist(band)
        return
    if isinstance(mark, PolicyLine):
        looks = {"linestyle": (0, style.dashes) if style.dashes else "-", "linewidth": style.width}
        looks |= {"marker": style.marker or None, "markersize": 4.2, "markeredgewidth": 0}
    elif style.control:
        looks = {"marker": mark.shape, "fillstyle": "none", "markersize": 4, "markeredgewidth": 0.9, "linestyle": ""}
    else:
        looks = {"marker": mark.shape, "markersize": 5.0, "markeredgewidth": 0, "linestyle": ""}
    looks |= {"color": style.colours[0], "clip_on": False, "zorder": depth(mark), "gid": f"policy:{style.index}"}
    label = "_" if style.policy in named else style.label
    named.add(style.policy)
    axes.add_artist(lines.Line2D(*zip(*mark.places, strict=True), label=label, **looks))
