"""Lays figures out for paper and writes their files: the same figure gives the same bytes."""

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from leaderboards.errors import LeaderboardError
from leaderboards.paper.painting import paint
from leaderboards.paper.pictures import Panel, PaperFigure, Printable, legend_styles
from leaderboards.rendering.frames import INK
from leaderboards.rendering.templating import HeatMap
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

matplotlib = LazyModule("matplotlib")
backend_agg = LazyModule("matplotlib.backends.backend_agg")
figures = LazyModule("matplotlib.figure")
seaborn = LazyModule("seaborn")

SHAPE = 0.62  # of a panel, its height for a width of 1
LOWEST = 1.1  # inches that a panel is high at least
LAYER = 0.14  # inches of height for each row of a map
NARROWEST = 1.5  # inches of a panel beside others
LEGEND_LINE = 0.17  # inches
HEADING_LINE = 0.16
ROOM = 0.42  # inches of height for the title of an axis and its ticks
TICKS = 0.45  # inches of width for the same
DOTS = 300  # for an inch
INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
WORDS = {"column": 3.3, "page": 6.8}  # inches, in the usual paper of two columns
WIDTHS = (1.5, 30.0)  # inches, between which a figure can be read
LETTERS = 12.5  # of a heading, in an inch
MOST_COLUMNS = 5  # of a legend
SCALE = 0.85  # of seaborn's text on paper: 8 points, and 7.5 at ticks
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


@dataclass(frozen=True)
class Paper:
    """The width in inches, and whether a heading stands above the figure."""

    width: float = WORDS["page"]
    headed: bool = True

    @classmethod
    def parse(cls, width: str, headed: bool = True) -> Self:
        """Reads a width such as ``column``, ``page``, ``3.25in``, ``8cm`` or ``82mm``.

        Raises :class:`LeaderboardError` for anything else, and for a width that is too narrow or
        too wide to be read."""
        inches = WORDS.get(width.strip(), 0.0)
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(in|cm|mm)\s*", width)
        if match:
            number, unit = match.groups()
            inches = float(number) * INCHES[unit]
        narrowest, widest = WIDTHS
        if not narrowest <= inches <= widest:
            usual = f"{', '.join(WORDS)}, or one such as 3.25in, 8cm or 82mm"
            raise LeaderboardError(f"'{width}' is no width of a figure: give {usual}")
        return cls(inches, headed)


USUAL = Paper()


def save(figure: PaperFigure, folder: Path, suffixes: Iterable[str], paper: Paper = USUAL) -> None:
    """Writes a figure in each format: svg, png or pdf."""
    # The ids in an SVG come from the salt, and a date would differ each time.
    with matplotlib.rc_context({**_settings(), "svg.hashsalt": figure.stem}):
        sheet = draw(figure, paper)
        for suffix in suffixes:
            path = folder / f"{figure.stem}.{suffix}"
            sheet.savefig(path, dpi=DOTS, metadata=UNDATED.get(suffix, {}))


def make_sheet(figure: PaperFigure, paper: Paper = USUAL) -> "Figure":
    """Returns a figure as an object of matplotlib, in the looks of those that are written."""
    with matplotlib.rc_context(_settings()):
        return draw(figure, paper)


def _settings() -> dict[str, Any]:
    return {
        **seaborn.axes_style("ticks"),
        **seaborn.plotting_context("paper", font_scale=SCALE),
        # It comes with matplotlib: another one would make other bytes on another machine, and may
        # lack arrows.
        "font.sans-serif": ["DejaVu Sans"],
        "svg.fonttype": "none",
        "text.parse_math": False,  # a name with two dollars is no formula
        "pdf.fonttype": 42,  # TrueType, whole: journals refuse the outlines that are the default
        "path.simplify": False,
        **dict.fromkeys(
            ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"),
            INK,
        ),
        **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 0.0),
    }


def draw(figure: PaperFigure, paper: Paper = USUAL) -> "Figure":
    """Draws all panels with one legend and one bar of colours, and fixes where everything stands,
    so that the files of all formats look the same."""
    columns = _panels_beside(figure, paper.width)
    rows = math.ceil(len(figure.panels) / columns)
    width = paper.width / columns
    height = max(_panel_height(panel.picture, width) for panel in figure.panels)
    titles = [_folded(panel.title, width) for panel in figure.panels]
    heading = _folded(figure.heading, paper.width) if paper.headed else ""
    sheet: Figure = figures.Figure(figsize=(paper.width, rows * height))
    canvas = backend_agg.FigureCanvasAgg(sheet)  # without a window, and unknown to pyplot
    grid = list(sheet.subplots(rows, columns, squeeze=False).flat)
    used, unused = grid[: len(titles)], grid[len(titles) :]
    for axes in unused:
        axes.remove()
    for axes, panel, title in zip(used, figure.panels, titles, strict=True):
        paint(axes, panel.picture, (width - TICKS, height))
        axes.set_title(title, loc="left", fontsize="medium")
    # After all are painted, since what a panel may leave out depends on its neighbours.
    _thin_labels(used, columns, (width, height))
    # From here on, as seaborn draws a map once to look at its ticks.
    sheet.set_layout_engine("constrained")
    _add_bar(sheet, figure.panels, used)
    lines = LEGEND_LINE * _add_legend(sheet, canvas.get_renderer(), figure.panels, used)
    if heading:
        sheet.suptitle(heading, x=0.01, ha="left", fontsize="large", color=INK)
    # Titles, legend and heading are added to the height, so that they take nothing from the panels.
    around = ROOM + HEADING_LINE * max(map(_lines_in, titles))
    sheet.set_size_inches(
        paper.width, rows * (height + around) + lines + HEADING_LINE * _lines_in(heading)
    )
    sheet.draw_without_rendering()
    sheet.set_layout_engine("none")
    return sheet


def _panels_beside(figure: PaperFigure, width: float) -> int:
    """Returns how many panels stand side by side: on narrow paper a part of the usual number
    without a rest, so that what stands in one column still does."""
    usual = min(figure.columns, len(figure.panels))
    for count in range(usual, 1, -1):
        if usual % count == 0 and count * NARROWEST <= width:
            return count
    return 1


def _panel_height(picture: Printable, width: float) -> float:
    """Returns the inches from the lower end of the vertical axis to the upper one."""
    if isinstance(picture, HeatMap):
        return max(LOWEST, LAYER * len(picture.rows))
    return max(LOWEST, SHAPE * width)


def _lines_in(text: str) -> int:
    return text.count("\n") + 1 if text else 0


def _thin_labels(used: Sequence["Axes"], columns: int, size: tuple[float, float]) -> None:
    """Folds the titles of axes, and writes once what neighbours share: below a column, and left of
    a row. ``size``: of each panel."""
    width, height = size
    titles_across = [axes.get_xlabel() for axes in used]
    titles_up = [axes.get_ylabel() for axes in used]
    for place, axes in enumerate(used):
        across, up = titles_across[place], titles_up[place]
        # A slice, which is empty where nothing stands below.
        if across in titles_across[place + columns : place + columns + 1]:
            across = ""
        is_first_of_row = place % columns == 0
        if not is_first_of_row and titles_up[place - 1] == up:
            up = ""
        axes.set_xlabel(_folded(across, width))
        axes.set_ylabel(_folded(up, height))


def _add_bar(sheet: "Figure", panels: Sequence[Panel], used: Sequence["Axes"]) -> None:
    """Adds one bar of colours where the panels are maps, which share their scale."""
    maps = [panel.picture for panel in panels if isinstance(panel.picture, HeatMap)]
    if maps:
        bar = sheet.colorbar(used[0].collections[0], ax=list(used), aspect=30, pad=0.02)
        bar.set_label(maps[0].unit)
        bar.outline.set_visible(False)


def _add_legend(
    sheet: "Figure", renderer: Any, panels: Sequence[Panel], used: Sequence["Axes"]
) -> int:
    """Adds a legend with as many columns as are no wider than the figure, and returns how many
    lines it has."""
    handles: dict[str, Any] = {}
    for axes in used:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    names: dict[str, Any] = {}
    for panel in panels:
        for style in legend_styles(panel.picture):
            if style.label in handles:
                names[style.label] = handles[style.label]
    looks: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "labelcolor": INK}
    for count in range(min(MOST_COLUMNS, len(names)), 0, -1):
        legend = sheet.legend(list(names.values()), list(names), ncols=count, **looks)
        if count == 1 or legend.get_window_extent(renderer).width <= sheet.bbox.width:
            return math.ceil(len(names) / count)
        legend.remove()
    return 0


def _folded(text: str, inches: float) -> str:
    """Breaks a text into lines that are no longer than so many inches."""
    letters = max(1, int(inches * LETTERS))
    return textwrap.fill(text, letters)
