"""The heat map of policies by task, shown for one measure at one level at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from leaderboards.aggregate.row import ALL_TASKS, GER, HALLUCINATION, RIGHT, SummaryRow
from leaderboards.boards.declaration import TableCell, heat_of
from leaderboards.metrics import Measure
from leaderboards.rendering.frames import INK
from leaderboards.rendering.printed import Paper, figures, print_settings, write_figure
from leaderboards.rendering.templating import as_data
from leaderboards.statistics.bootstrap import Blank
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import UNTREATED, Level, kind_name, names_of
from policies.declaration.names import CONTROLS, FULL

seaborn: Any = LazyModule("seaborn")  # its import takes a tenth of a second, and most sites have no such drawing
COLOURS = {RIGHT.name: "#1858c8", HALLUCINATION.name: "#cd6014", GER.name: "#92468c"}  # those of the page
UNRUN = Blank("not run")
CELL = (0.62, 0.3)  # inches
BESIDE, ABOVE = 2.2, 1.4  # inches for the names of the rows, and for what stands above and below
NARROWEST = 6.0  # inches, which have room for a heading
LEGIBLE = 0.7  # of the width that the cells need: numbers of a narrower map would lie over one another
TINY = 1e-9  # a scale from a value to itself has no colours

Key = tuple[str, str]  # of a layer: the name of its measure, and a level
Grid = tuple[tuple[float | Blank, ...], ...]


@dataclass(frozen=True)
class Layer:
    """The cells that the map shows for one choice."""

    measure: Measure
    values: Grid  # in the unit of a row, shape (policies, tasks)
    top: float  # the value of full heat
    bottom: float  # the value of no heat

    @cached_property
    def cells(self) -> list[list[TableCell]]:
        return [[self._cell(value) for value in row] for row in self.values]

    def _cell(self, value: float | Blank) -> TableCell:
        if isinstance(value, Blank):
            return TableCell.blank(value.reason)
        heat = heat_of(value - self.bottom, self.top - self.bottom)
        return TableCell(self.measure.text(value), sort=value, heat=heat)

    @property
    def heading(self) -> str:
        """Returns the name, unit and better end of its measure."""
        better = f"; {self.measure.better} is better" if self.measure.better else ""
        return f"{self.measure.title}, {self.measure.unit}{better}"

    @property
    def reasons(self) -> list[str]:
        return list(dict.fromkeys(f"{cell.dash}: {cell.reason}" for row in self.cells for cell in row if cell.reason))


@dataclass(frozen=True)
class HeatMap:
    """Policies by task, of which one layer at a time is shown."""

    policies: tuple[str, ...]
    tasks: tuple[str, ...]
    level_title: str
    layers: Mapping[Key, Layer]
    first: Key  # the layer that a page shows without its script

    @property
    def choices(self) -> list[tuple[str, dict[str, str]]]:
        """Returns the two choices of a layer: their titles, and their options by what stands in the key."""
        measures = {layer.measure.name: layer.measure.title for layer in self.layers.values()}
        return [("measure", measures), (self.level_title, {level: level for _, level in self.layers})]

    def data(self) -> Markup:
        """Returns what the page's script needs to show any layer: for each row the texts of its cells with a space
        between them, of a blank one "#" and the number of its sign and reason."""
        reasons: dict[str, int] = {}

        def text(cell: TableCell) -> str:
            return f"#{reasons.setdefault(f'{cell.dash} {cell.reason}', len(reasons))}" if cell.reason else cell.text

        layers = {
            "/".join(key): {
                "measure": layer.measure.name,
                "rows": [" ".join(map(text, row)) for row in layer.cells],
            }
            for key, layer in self.layers.items()
        }
        one_of_each = {layer.measure.name: layer for layer in self.layers.values()}
        factors = {name: layer.measure.factor for name, layer in one_of_each.items()}
        ends = {name: [factors[name] * end for end in (one.bottom, one.top)] for name, one in one_of_each.items()}
        told = {name: layer.heading for name, layer in one_of_each.items()}
        return as_data({"told": told, "ends": ends, "reasons": list(reasons), "layers": layers})

    def save(self, key: Key, path: Path, heading: str, paper: Paper | None = None) -> None:
        """Writes a layer for print with its numbers in the cells, as far as they can be read, and a bar of its
        colours; blank cells are empty. It is as wide as the cells need, unless ``paper`` says how wide. The format is
        that of the suffix: svg, png or pdf."""
        layer = self.layers[key]
        factor = layer.measure.factor
        values = [[np.nan if isinstance(value, Blank) else factor * value for value in row] for row in layer.values]
        wide = max(NARROWEST, BESIDE + CELL[0] * len(self.tasks))
        paper = paper or Paper(wide)
        legible = paper.width >= LEGIBLE * wide
        size = (paper.width, ABOVE + CELL[1] * len(values))
        with print_settings(heading):
            figure = figures.Figure(figsize=size, layout="constrained")
            axes = figure.add_subplot()
            seaborn.heatmap(
                np.array(values, dtype=np.float64),
                ax=axes,
                vmin=layer.bottom * factor,
                vmax=max(layer.top, layer.bottom + TINY) * factor,
                cmap=seaborn.light_palette(COLOURS[layer.measure.name], as_cmap=True),
                annot=[["" if cell.reason else cell.text for cell in row] for row in layer.cells] if legible else None,
                fmt="",
                annot_kws={"fontsize": 9 * min(1.0, paper.width / wide)},  # as small as the cells
                cbar_kws={
                    **{"aspect": 40, "pad": 0.02},
                    "label": paper.upright_label(f"{layer.measure.title}, {layer.measure.unit}", size[1]),
                },
                linewidths=1,
                xticklabels=list(self.tasks),
                yticklabels=list(self.policies),
            )
            axes.tick_params(colors=INK, length=0, pad=5)
            axes.tick_params(axis="y", rotation=0)
            if not legible:
                axes.tick_params(axis="x", rotation=90)
            axes.set_title(paper.heading(heading), loc="left", color=INK, fontsize="medium")
            write_figure(figure, path)


def task_map(rows: Sequence[SummaryRow], mode: str) -> HeatMap | Blank:
    """Maps policies by task, at a level that can be chosen. ``rows``: of a run."""
    of_mode = [row for row in rows if row.mode == mode]
    tasks = tuple(task for task in dict.fromkeys(row.task for row in of_mode) if task != ALL_TASKS)
    levels = sorted({row.at for row in of_mode if row.policy != FULL and row.at != UNTREATED})
    if not levels:
        return UNRUN
    by_place = {(row.policy, row.task, row.at): row for row in of_mode}
    full = {row.task: row for row in of_mode if row.policy == FULL}
    policies = tuple(sorted(dict.fromkeys(row.policy for row in of_mode), key=lambda policy: policy in CONTROLS))
    names = names_of(levels)
    layers: dict[Key, Layer] = {}
    measures = [one for one in (RIGHT, HALLUCINATION, GER) if any(one.value(row) is not None for row in of_mode)]
    for measure in measures:

        def value(policy: str, task: str, level: Level, measure: Measure = measure) -> float | Blank:
            row = full.get(task) if policy == FULL else by_place.get((policy, task, level))
            if row is None:
                return UNRUN
            found = measure.value(row)
            return Blank(row.reason or "not measured") if found is None else found

        grids = {
            name: tuple(tuple(value(policy, task, level) for task in tasks) for policy in policies)
            for level, name in names.items()
        }
        # Layers of one measure have the same heat, so that one can be compared with another.
        known = [one for grid in grids.values() for row in grid for one in row if not isinstance(one, Blank)]
        ends = max(known, default=0.0), min(known, default=0.0)
        layers |= {(measure.name, name): Layer(measure, grid, *ends) for name, grid in grids.items()}
    first = (measures[0].name, names[levels[len(levels) // 2]])
    return HeatMap(policies, tasks, f"asked {kind_name(levels)}", layers, first)
