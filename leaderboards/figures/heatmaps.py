"""Makes heat maps, shown a layer at a time: tasks by policy, and by ratio kinds of questions and the layers of a
model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TypeVar

from markupsafe import Markup

from leaderboards.aggregate.facets import NO_SUCH, NOT_RUN, PROPERTIES, Facet, mean_of
from leaderboards.aggregate.row import ALL_TASKS, GER, HALLUCINATION, RIGHT, SummaryRow
from leaderboards.boards.cells import TableCell, heat_of
from leaderboards.metrics import Measure
from leaderboards.rendering.templating import as_data
from leaderboards.statistics.bootstrap import Blank
from policies.declaration.levels import UNTREATED, Level, kind_name, kind_title, names_of
from policies.declaration.names import CONTROLS, FULL

SHOWN = (RIGHT, HALLUCINATION, GER)
UNRUN = Blank(NOT_RUN)
MEAN = "mean of the methods"
QUESTIONS = "questions"
BETWEEN = "/"  # the parts of a key

Key = tuple[str, str]  # of a layer: the name of its measure, and a level or a policy
Option = TypeVar("Option")
Grid = tuple[tuple[float | Blank, ...], ...]


@dataclass(frozen=True)
class Layer:
    """The cells that a heat map shows for one choice."""

    measure: Measure
    values: Grid  # in the unit of a row, shape (rows, columns)
    top: float  # the value of full heat
    bottom: float  # the value of no heat

    @cached_property
    def cells(self) -> list[list[TableCell]]:
        return [[self._cell(value) for value in row] for row in self.values]

    def _cell(self, value: float | Blank) -> TableCell:
        if isinstance(value, Blank):
            return TableCell.blank(value.reason)
        return TableCell(
            self.measure.text(value), sort=value, heat=heat_of(value - self.bottom, self.top - self.bottom)
        )

    @property
    def reasons(self) -> list[str]:
        return list(dict.fromkeys(f"{cell.dash}: {cell.reason}" for row in self.cells for cell in row if cell.reason))


@dataclass(frozen=True)
class HeatRow:
    """The head of a row."""

    name: str
    detail: str = ""


@dataclass(frozen=True)
class HeatGroup:
    """Rows under a title."""

    title: str
    rows: tuple[HeatRow, ...]
    start: int = 0  # the place of the first among all rows


@dataclass(frozen=True)
class Choice:
    """A choice of the layer that is shown."""

    title: str
    options: tuple[tuple[str, str], ...]  # what stands in the key of a layer, and its text


@dataclass(frozen=True)
class HeatMap:
    """A table of which one layer at a time is shown."""

    name: str
    title: str
    note: str
    corner: str  # what the rows are
    column_title: str
    columns: tuple[str, ...]
    groups: tuple[HeatGroup, ...]
    choices: tuple[Choice, ...]  # two
    layers: Mapping[Key, Layer]  # by what is chosen
    first: Key  # the layer that a page shows without its script

    @property
    def download(self) -> str:
        """Names the table that has its numbers."""
        return QUESTIONS if self.name == QUESTIONS else "cells"

    @property
    def headings(self) -> dict[str, str]:
        """Returns by measure its name, unit and better end."""
        measures = {layer.measure.name: layer.measure for layer in self.layers.values()}
        return {
            name: f"{one.title}, {one.unit}" + (f"; {one.better} is better" if one.better else "")
            for name, one in measures.items()
        }

    def data(self) -> Markup:
        """Returns what the page's script needs to show any layer: for each row the texts of its cells with a space
        between them, of a blank one "#" and the number of its sign and reason."""
        reasons: dict[str, int] = {}
        layers = {
            BETWEEN.join(key): {
                "measure": layer.measure.name,
                "rows": [
                    " ".join(
                        f"#{reasons.setdefault(f'{cell.dash} {cell.reason}', len(reasons))}"
                        if cell.reason
                        else cell.text
                        for cell in row
                    )
                    for row in layer.cells
                ],
            }
            for key, layer in self.layers.items()
        }
        ends = {
            layer.measure.name: [end * layer.measure.factor for end in (layer.bottom, layer.top)]
            for layer in self.layers.values()
        }
        return as_data({"told": self.headings, "ends": ends, "reasons": list(reasons), "layers": layers})


def task_map(rows: Sequence[SummaryRow], mode: str) -> HeatMap | Blank:
    """Maps policies by task, at a level that can be chosen. ``rows``: of a run."""
    of_mode = [row for row in rows if row.mode == mode]
    tasks = [task for task in dict.fromkeys(row.task for row in of_mode) if task != ALL_TASKS]
    levels = _levels(of_mode)
    if not levels:
        return UNRUN
    by_place = {(row.policy, row.task, row.at): row for row in of_mode}
    full = {row.task: row for row in of_mode if row.policy == FULL}
    policies = _methods_first(of_mode)
    names, middle = names_of(levels), levels[len(levels) // 2]
    measures = _with_values(of_mode)

    def grid(measure: Measure, level: Level) -> Grid:
        return tuple(
            tuple(
                _value_or_blank(full.get(task) if policy == FULL else by_place.get((policy, task, level)), measure)
                for task in tasks
            )
            for policy in policies
        )

    return HeatMap(
        "tasks",
        "Tasks by policy",
        "The full cache is the same at every level.",
        "policy",
        "task",
        tuple(tasks),
        (HeatGroup("", tuple(HeatRow(policy) for policy in policies)),),
        (_measure_choice(measures), Choice(f"asked {kind_name(levels)}", tuple((one, one) for one in names.values()))),
        _layers(measures, {name: level for level, name in names.items()}, grid),
        (measures[0].name, names[middle]),
    )


def question_map(facets: Sequence[Facet], rows: Sequence[SummaryRow], task: str, mode: str) -> HeatMap | Blank:
    """Maps kinds of questions by level, of a policy that can be chosen or the mean of the methods."""
    of_board = [row for row in rows if (row.mode, row.task) == (mode, task)]
    levels, measures = _levels(of_board), _with_values(of_board)
    parts = {
        part: [one for one in facets if (one.mode, one.task, one.part) == (mode, task, part)] for part in PROPERTIES
    }
    kinds = [facet for part in PROPERTIES for facet in parts[part]]
    if not levels or not measures or not kinds:
        return UNRUN
    groups, start = [], 0
    for part, title in PROPERTIES.items():
        group = tuple(HeatRow(facet.value, f"n = {facet.n:,}") for facet in parts[part])
        if group:
            groups.append(HeatGroup(title, group, start))
        start += len(group)

    def grid(measure: Measure, policy: str) -> Grid:
        return tuple(
            tuple(facet.values[measure.field].get(cell, UNRUN) for cell in _cells(policy, levels)) for facet in kinds
        )

    note = "n: questions in each cell."
    if task == ALL_TASKS:
        note += " Unweighted mean over the tasks that have such questions."
    return _by_policy((QUESTIONS, "Kinds of questions", note, "question"), groups, levels, of_board, measures, grid)


def layer_map(rows: Sequence[SummaryRow], task: str, mode: str) -> HeatMap | Blank:
    """Shows GER in each layer of the model taken alone, by level, of a policy that can be chosen or the mean of
    methods."""
    of_board = [row for row in rows if (row.mode, row.task) == (mode, task)]
    by_place = {(row.policy, row.at): row for row in of_board}
    layers = max((len(row.ger_by_layer or ()) for row in of_board), default=0)
    levels = _levels(of_board)
    if not layers or not levels:
        return Blank(next((row.reason for row in of_board if row.reason), "not measured"))

    def grid(measure: Measure, policy: str) -> Grid:
        rows_of = [by_place.get(cell) for cell in _cells(policy, levels)]
        return tuple(tuple(_in_layer(row, layer) for row in rows_of) for layer in range(layers))

    group = HeatGroup("", tuple(HeatRow(f"layer {number}") for number in range(layers)))
    note = "Each layer taken alone; the GER of the cache counts what survives in none of them."
    return _by_policy(("layers", "Layers", note, "layer"), [group], levels, of_board, (GER,), grid)


def _by_policy(
    words: tuple[str, str, str, str],
    groups: Sequence[HeatGroup],
    levels: Sequence[Level],
    rows: Sequence[SummaryRow],
    measures: Sequence[Measure],
    grid: Callable[[Measure, str], Grid],
) -> HeatMap:
    """Makes a map with a layer for each policy but the full cache, which is the first column of all of them, and for
    the mean."""
    name, title, note, corner = words
    policies = [policy for policy in _methods_first(rows) if policy != FULL]
    methods = [policy for policy in policies if policy not in CONTROLS]
    # The best method first: a mean hides a method that is far worse than the others.
    policies.sort(key=lambda policy: (policy in CONTROLS, -_mean_right(rows, policy)))
    choice = Choice("policy", tuple((name, name) for name in [*policies, *([MEAN] if len(methods) > 1 else [])]))

    def of_policy(measure: Measure, policy: str) -> Grid:
        return grid(measure, policy) if policy != MEAN else _mean({method: grid(measure, method) for method in methods})

    layers = _layers(measures, {name: name for name, _ in choice.options}, of_policy)
    return HeatMap(
        name,
        title,
        note,
        corner,
        kind_title(levels),
        (FULL, *names_of(levels).values()),
        tuple(groups),
        (_measure_choice(measures), choice),
        layers,
        (measures[0].name, choice.options[0][0]),
    )


def _mean_right(rows: Sequence[SummaryRow], policy: str) -> float:
    values = [value for row in rows if row.policy == policy and (value := RIGHT.value(row)) is not None]
    return fmean(values) if values else 0.0


def _layers(
    measures: Sequence[Measure], options: Mapping[str, Option], grid: Callable[[Measure, Option], Grid]
) -> dict[Key, Layer]:
    """Makes all layers. Those of one measure have the same heat, so that one can be compared with another."""
    layers: dict[Key, Layer] = {}
    for measure in measures:
        grids = {key: grid(measure, option) for key, option in options.items()}
        values = [value for one in grids.values() for row in one for value in row if not isinstance(value, Blank)]
        top, bottom = max(values, default=0.0), min(values, default=0.0)
        layers |= {(measure.name, key): Layer(measure, one, top, bottom) for key, one in grids.items()}
    return layers


def _mean(grids: Mapping[str, Grid]) -> Grid:
    """Averages over the methods, cell by cell; blank where any of them is."""
    first = next(iter(grids.values()))
    return tuple(
        tuple(
            mean_of([_said_by(name, grid[row][column]) for name, grid in grids.items()]) for column in range(len(cells))
        )
        for row, cells in enumerate(first)
    )


def _said_by(name: str, value: float | Blank) -> float | Blank:
    return Blank(f"{name}: {value.reason}") if isinstance(value, Blank) and value.reason != NO_SUCH else value


def _cells(policy: str, levels: Sequence[Level]) -> list[tuple[str, Level]]:
    return [(FULL, UNTREATED), *((policy, level) for level in levels)]


def _levels(rows: Sequence[SummaryRow]) -> list[Level]:
    return sorted({row.at for row in rows if row.policy != FULL and row.at != UNTREATED})


def _methods_first(rows: Sequence[SummaryRow]) -> list[str]:
    policies = list(dict.fromkeys(row.policy for row in rows))
    return sorted(policies, key=lambda policy: policy in CONTROLS)


def _with_values(rows: Sequence[SummaryRow]) -> list[Measure]:
    return [measure for measure in SHOWN if any(measure.value(row) is not None for row in rows)]


def _value_or_blank(row: SummaryRow | None, measure: Measure) -> float | Blank:
    if row is None:
        return UNRUN
    value = measure.value(row)
    return Blank(row.reason or "not measured") if value is None else value


def _in_layer(row: SummaryRow | None, layer: int) -> float | Blank:
    if row is None:
        return UNRUN
    layers = row.ger_by_layer
    return Blank(row.reason or "not measured") if layers is None or layer >= len(layers) else layers[layer]


def _measure_choice(measures: Sequence[Measure]) -> Choice:
    return Choice("measure", tuple((measure.name, measure.title) for measure in measures))
