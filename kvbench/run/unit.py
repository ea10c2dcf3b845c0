"""A unit of work in plain values, so that it can be sent to any worker, and how it is run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from datasets_gen import Task
from kvbench.engine.decode.answers import check_length
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from kvbench.run.same_answers import same_full_answers
from kvbench.store.tables import RowsByTable
from policies import Point

NAMED = 5


def some_of(policies: Sequence[str]) -> str:
    """Names the first policies, and counts the others."""
    more = len(policies) - NAMED
    return ", ".join(policies[:NAMED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class UnitPart:
    """A part of a unit: one context, and the policies, levels and draws to be run on it."""

    task: str
    index: int
    policies: tuple[str, ...]
    points: tuple[Point, ...]

    def __str__(self) -> str:
        return f"{self.task} {self.index} ({some_of(self.policies)})"

    def setting_in(self, grid: Grid) -> Setting:
        """Returns the setting of the grid, restricted to the part."""
        policies = [policy for policy in grid.setting.policies if policy.name in self.policies]
        return grid.setting.at(self.points).only(policies)


@dataclass(frozen=True)
class Unit:
    """A chunk of contexts of one task, whose records are written together and lost together."""

    task: str
    number: int
    parts: tuple[UnitPart, ...]

    def __str__(self) -> str:
        return f"{self.task} {self.parts[0].index}-{self.parts[-1].index}"

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.policies))


def task_in(grid: Grid, name: str) -> Task:
    return next(task for task, _ in grid.tasks if task.name == name)


def count_in(grid: Grid, part: UnitPart) -> int:
    """Counts the answers of a part."""
    setting = part.setting_in(grid)
    cells = sum(len(policy.points_among(setting.points)) for policy in setting.policies)
    return grid.questions(task_in(grid, part.task), part.index) * cells


def rows_of(model: LoadedModel, grid: Grid, unit: Unit, part: UnitPart, max_kv_bytes: int) -> RowsByTable:
    """Runs a part of a unit and returns its rows. ``max_kv_bytes``: this worker's share of the bound on keys and
    values. Raises :class:`KVBenchError` if a press of a user changed what others read: the first context of the task is
    asked again behind the first and the last part."""
    task, setting = task_in(grid, part.task), replace(part.setting_in(grid), max_kv_bytes=max_kv_bytes)
    first, donor_of = grid.example(task, 0), partial(grid.donor, task)
    with same_full_answers(model, task, first, setting, ask_again=part in (unit.parts[0], unit.parts[-1])):
        return collect(model, task, [grid.example(task, part.index)], setting, donor_of)


def check_first_contexts(model: LoadedModel, grid: Grid) -> None:
    """Raises :class:`KVBenchError` before anything is written if the model cannot read the first context of a task, or
    any context of a task whose contexts were given and are of any length."""
    for task, contexts in grid.tasks:
        for index in range(1 if task.most is None else contexts):
            for prompt in build_prompts(model.tokenizer, task, grid.example(task, index), grid.setting.mode):
                check_length(model, prompt, task.max_new_tokens)
