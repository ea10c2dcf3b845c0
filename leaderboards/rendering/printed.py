"""Draws for print, by matplotlib, which is imported only here: a page does without it."""

import math
import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from leaderboards.errors import LeaderboardError
from leaderboards.rendering.frames import INK, Axis, Band, Dots, Frame, Mark, PolicyLine, Region
from leaderboards.rendering.style import LineStyle
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

    def heading(self, text: str) -> str:
        """Returns a heading in lines that are no wider than the figure, or nothing."""
        return self.lower_label(text) if self.headed else ""

    def lower_label(self, text: str) -> str:
        """Returns the label of the lower axis in lines that are no wider than the figure."""
        return textwrap.fill(text, int(self.width * LETTERS))

    @staticmethod
    def upright_label(text: str, height: float) -> str:
        """Returns the label of an upright axis in lines that are no longer than ``height``, in inches."""
        return textwrap.fill(text, max(1, int(height * LETTERS)))


USUAL = Paper()


def save(frame: Frame, marks: Sequence[Mark], salt: str, path: Path, heading: str, paper: Paper) -> None:
    """Draws with a legend of all policies; the format is that of the suffix: svg, png or pdf. ``salt``: makes ids that
    are the same in every process."""
    with print_settings(salt):
        figure = figures.Figure(layout="constrained")
        axes = figure.add_subplot()
        _dress(axes, frame)
        named: set[str] = set()
        for mark in marks:
            _add(axes, mark, named)
        axes.set_xlabel(paper.lower_label(frame.horizontal.title), color=INK, labelpad=4)
        upright = paper.upright_label(frame.vertical.title, SHAPE * paper.width)
        axes.set_ylabel(upright, color=INK, labelpad=4)
        axes.set_title(paper.heading(heading), loc="left", color=INK, fontsize="medium")
        handles, labels = axes.get_legend_handles_labels()
        figure.set_size_inches(paper.width, SHAPE * paper.width)
        lines_of_legend = math.ceil(len(labels) / _add_legend(figure, handles, labels))
        figure.set_size_inches(paper.width, 0.5 + SHAPE * paper.width + LEGEND_LINE * lines_of_legend)
        write_figure(figure, path)


def _add_legend(figure: "Figure", handles: Sequence[Any], labels: Sequence[str]) -> int:
    """Adds a legend with as many columns as are no wider than the figure, and returns how many."""
    renderer = backend_agg.FigureCanvasAgg(figure).get_renderer()
    for count in range(min(MOST_COLUMNS, len(labels)), 0, -1):
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=count, frameon=False)
        if count == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            break
        legend.remove()
    return count


def write_figure(figure: "Figure", path: Path) -> None:
    """Writes a figure. It has no date: the same values give the same bytes."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    figure.savefig(path, dpi=DOTS, metadata=undated)


def print_settings(salt: str) -> AbstractContextManager[None]:
    """Applies the settings in which a figure is made and saved."""
    settings = {
        "svg.fonttype": "none",
        "text.parse_math": False,  # a name with two dollars is no formula
        "pdf.fonttype": 42,  # TrueType, whole: journals refuse the outlines that are the default
        "svg.hashsalt": salt,
        "font.size": 9.0,
        "axes.linewidth": 0.8,
        "path.simplify": False,
    }
    context: AbstractContextManager[None] = matplotlib.rc_context(settings)
    return context


def _dress(axes: "Axes", frame: Frame) -> None:
    _scale(axes, frame.horizontal, frame.vertical)
    axes.set_xticks(frame.horizontal.ticks, [f"{tick:g}" for tick in frame.horizontal.ticks])
    axes.set_yticks(frame.vertical.ticks, [f"{tick:g}" for tick in frame.vertical.ticks])
    axes.tick_params(colors=INK, length=0, pad=5)
    axes.grid(axis="y", color=INK, alpha=0.22, linewidth=0.6, clip_on=False)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    if frame.corner:
        axes.text(0.012, 0.985, frame.corner, transform=axes.transAxes, color=INK, va="top", fontsize=8.5)


def _scale(axes: "Axes", horizontal: Axis, vertical: Axis) -> None:
    if horizontal.doubling:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xlim(horizontal.first, horizontal.last)
    axes.set_ylim(vertical.first, vertical.last)


def _add(axes: "Axes", mark: Mark, named: set[str]) -> None:
    """Puts a mark on the axes, whose own methods would also guess units and limits. ``named``: the policies that the
    legend has already."""
    match mark:
        case PolicyLine(style, places):
            looks: Any = {"linestyle": (0, style.dashes) if style.dashes else "-", "linewidth": style.width}
            looks |= {"marker": style.marker or None, "markersize": 4.2, "markeredgewidth": 0}
            _add_line(axes, mark, places, "policy", style, label=_label(style, named), **looks)
        case Dots(style, places):
            looks = {"marker": mark.shape, "markersize": 5.0, "markeredgewidth": 0}
            if style.control:
                looks = {"marker": mark.shape, "fillstyle": "none", "markersize": 4, "markeredgewidth": 0.9}
            _add_line(axes, mark, places, "policy", style, linestyle="", label=_label(style, named), **looks)
        case Band(style, outline, opacity):
            looks = {"facecolor": style.colours[0], "alpha": opacity, "linewidth": 0, "clip_on": False}
            band = patches.Polygon(outline, zorder=mark.depth, **looks)
            band.set_gid(f"band:{style.index}")
            axes.add_artist(band)
        case Region(low, high):
            looks = {"color": INK, "alpha": 0.12, "linewidth": 0}
            axes.fill_between([low[0], high[0]], low[1], high[1], **looks)


def _add_line(
    axes: "Axes", mark: Mark, places: Sequence[tuple[float, float]], kind: str, style: LineStyle, **looks: Any
) -> None:
    x, y = zip(*places, strict=True)
    looks |= {"color": style.colours[0], "clip_on": False, "zorder": mark.depth, "gid": f"{kind}:{style.index}"}
    axes.add_artist(lines.Line2D(x, y, **looks))


def _label(style: LineStyle, named: set[str]) -> str:
    """Returns what the legend says of a mark: a line that is in pieces stands there once."""
    if style.policy in named:
        return "_"
    named.add(style.policy)
    return style.label
