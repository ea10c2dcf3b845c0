"""What a worker is given at a time, in plain values, so that it can be sent anywhere, and what it makes of it."""

from dataclasses import dataclass, replace

from datasets_gen import Task
from kvbench.engine.decode.answers import check_length
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from kvbench.store.rows import Rows
from policies import Point


@dataclass(frozen=True)
class Part:
    """What is to be run of one context of a task: policies by name, and the levels and draws that they share."""

    task: str
    index: int
    policies: tuple[str, ...]
    points: tuple[Point, ...]

    def setting_in(self, grid: Grid) -> Setting:
        """The setting of the grid, with no more than is to be run."""
        named = [policy for policy in grid.setting.policies if policy.name in self.policies]
        return grid.setting.at(self.points).only(named)


@dataclass(frozen=True)
class Unit:
    """A chunk of contexts of one task: what is written together, and lost together."""

    task: str
    number: int
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return f"{self.task} {self.parts[0].index}-{self.parts[-1].index}"


def task_in(grid: Grid, name: str) -> Task:
    return next(task for task, _ in grid.tasks if task.name == name)


def count_in(grid: Grid, part: Part) -> int:
    """Answers of one context."""
    setting = part.setting_in(grid)
    cells = sum(len(policy.points_among(setting.points)) for policy in setting.policies)
    return grid.questions(task_in(grid, part.task), part.index) * cells


def rows_of(model: LoadedModel, grid: Grid, part: Part, max_kv_bytes: int) -> Rows:
    """Runs one context. ``max_kv_bytes``: this worker's share of the bound on keys and values."""
    task, setting = task_in(grid, part.task), replace(part.setting_in(grid), max_kv_bytes=max_kv_bytes)
    return collect(model, task, [grid.example(task, part.index)], setting)


def check_first_contexts(model: LoadedModel, grid: Grid) -> None:
    """What no context of a task can be read for is found out before anything is written; of a task whose contexts were
    given, and are of any length, what one of them cannot be read for."""
    for task, contexts in grid.tasks:
        for index in range(1 if task.most is None else contexts):
            for prompt in build_prompts(model.tokenizer, task, grid.example(task, index), grid.setting.mode):
                check_length(model, prompt, task.max_new_tokens)
