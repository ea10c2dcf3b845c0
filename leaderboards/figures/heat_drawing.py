"""A layer of a heat map for print."""

from pathlib import Path

import numpy as np

from leaderboards.aggregate.row import GER, HALLUCINATION, RIGHT
from leaderboards.figures.heatmaps import HeatMap, Key
from leaderboards.rendering.frames import INK
from leaderboards.rendering.paper import Paper
from leaderboards.rendering.printed import figures, print_settings, write_figure
from leaderboards.statistics.bootstrap import Blank
from policies.declaration.lazy import LazyModule

seaborn = LazyModule("seaborn")  # its import takes a tenth of a second, and most sites have no such drawing
COLOURS = {RIGHT.name: "#1858c8", HALLUCINATION.name: "#cd6014", GER.name: "#92468c"}  # those of the page
CELL = (0.62, 0.3)  # inches
BESIDE = 2.2  # for the names of the rows, and above and below
ABOVE = 1.4
TINY = 1e-9  # a scale from a value to itself has no colours
NARROWEST = 6.0  # has room for a heading
LEGIBLE = 0.7  # of the width that the cells need: numbers of a narrower map would lie over one another


def save_map(
    heat_map: HeatMap, key: Key, path: Path, heading: str, paper: Paper | None = None, caption: str = ""
) -> None:
    """Writes a heat map with its numbers in the cells, as far as they can be read, and a bar of its colours; blank ones
    are empty. It is as wide as the cells need, unless ``paper`` says how wide. The format is that of the suffix: svg,
    png or pdf."""
    layer = heat_map.layers[key]
    values = np.array(
        [[np.nan if isinstance(value, Blank) else value for value in row] for row in layer.values], dtype=np.float64
    )
    wide = max(NARROWEST, BESIDE + CELL[0] * len(heat_map.columns))
    paper = paper or Paper(wide)
    value = f"{layer.measure.title}, {layer.measure.unit}"
    legible = paper.width >= LEGIBLE * wide
    size = (paper.width, ABOVE + CELL[1] * len(values))
    with print_settings(heading):
        figure = figures.Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        seaborn.heatmap(
            values * layer.measure.factor,
            ax=axes,
            vmin=layer.bottom * layer.measure.factor,
            vmax=max(layer.top, layer.bottom + TINY) * layer.measure.factor,
            cmap=seaborn.light_palette(COLOURS[layer.measure.name], as_cmap=True),
            annot=[["" if cell.reason else cell.text for cell in row] for row in layer.cells] if legible else None,
            fmt="",
            annot_kws={"fontsize": 9 * min(1.0, paper.width / wide)},  # as small as the cells
            cbar_kws={
                "aspect": 40,
                "pad": 0.02,
                "label": paper.upright_label(value, size[1]),
            },
            linewidths=1,
            xticklabels=list(heat_map.columns),
            yticklabels=[f"{row.name}  {row.detail}".strip() for group in heat_map.groups for row in group.rows],
        )
        axes.tick_params(colors=INK, length=0, pad=5)
        axes.tick_params(axis="y", rotation=0)
        if not legible:
            axes.tick_params(axis="x", rotation=90)
        axes.set_ylabel(heat_map.corner, color=INK, labelpad=6)
        axes.set_xlabel(paper.lower_label(heat_map.column_title), color=INK, labelpad=6)
        axes.set_title(paper.heading(heading), loc="left", color=INK, fontsize="medium")
        write_figure(figure, path, heading, caption)
