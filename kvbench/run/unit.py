"""A unit of work in plain values, so that it can be sent to any worker, and how it is run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import isclose

from datasets_gen import Example, Task
from kvbench.engine.decode.answers import check_length, decode
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from kvbench.store.tables import RowsByTable
from kvbench.system.errors import KVBenchError
from policies import FULL, POLICIES, Point

# Asks the full cache again behind presses of users: one that changes a global of a library changes what all others
# read, and nothing of the model shows it.

CLOSE = 1e-3  # nats; the same passes over the same tokens differ by rounding at most
FullAnswers = list[tuple[tuple[int, ...], float]]  # tokens, and nats of the right answer


@contextmanager
def same_full_answers(
    model: LoadedModel, task: Task, example: Example, setting: Setting, ask_again: bool
) -> Iterator[None]:
    """Raises :class:`KVBenchError` if the full cache answers otherwise behind the body, where it is asked again, than
    it first did in this process. Nothing is asked where all presses are kvpress's or ours."""
    foreign = [policy.name for policy in setting.policies if policy.origin]
    if not foreign:
        yield
        return
    asked = example.id, setting.mode, task.max_new_tokens
    if asked not in model.full_answers:
        model.full_answers[asked] = _answers(model, task, example, setting)
    before: FullAnswers = model.full_answers[asked]
    yield
    behind = _answers(model, task, example, setting) if ask_again else before
    for (tokens, nats), (tokens_before, nats_before) in zip(behind, before, strict=True):
        if tokens != tokens_before or not isclose(nats, nats_before, abs_tol=CLOSE):
            raise KVBenchError(
                f"behind {' or '.join(foreign)} the full cache answers {example.id} otherwise than before: a press "
                "changed what all others read, such as a global of torch: run without it"
            )


def _answers(model: LoadedModel, task: Task, example: Example, setting: Setting) -> FullAnswers:
    prompt = build_prompts(model.tokenizer, task, example, setting.mode)[0]
    trace = prefill(model, prompt, plan([POLICIES[FULL]], (), prompt, setting.seed, setting.time_limit))
    answers = decode(model, trace, task.max_new_tokens, setting.max_kv_bytes, gold=True)
    return [(tuple(answer.token_ids), answer.gold_nll or 0.0) for answer in answers]


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
