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
from kvbench.experiments.grid import Grid, Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from kvbench.store.tables import RowsByTable
from kvbench.system.errors import KVBenchError
from policies import FULL, POLICIES

CLOSE = 1e-3  # nats; the same passes over the same tokens differ by rounding at most
NAMED = 5
FullAnswers = list[tuple[tuple[int, ...], float]]  # tokens, and nats of the right answer


@contextmanager
def same_full_answers(
    model: LoadedModel, task: Task, example: Example, setting: Setting, ask_again: bool
) -> Iterator[None]:
    """Repeats the full cache after the body, to detect a user's press that patched a library and so changed later
    results, which nothing of the model shows.

    Raises :class:`KVBenchError` if the answers differ from the first ones of this process. Nothing is asked where all
    presses are kvpress's or ours.
    """
    foreign = [policy.name for policy in setting.policies if policy.origin]
    if not foreign:
        yield
        return
    key = example.id, setting.mode, task.max_new_tokens
    if key not in model.full_answers:
        model.full_answers[key] = _answers(model, task, example, setting)
    before: FullAnswers = model.full_answers[key]
    yield
    after = _answers(model, task, example, setting) if ask_again else before
    for (tokens, nats), (tokens_before, nats_before) in zip(after, before, strict=True):
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


def some_of(policies: Sequence[str]) -> str:
    """Names the first policies, and counts the others."""
    more = len(policies) - NAMED
    return ", ".join(policies[:NAMED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class Unit:
    """A chunk of contexts of one task with the policies to run on them: its records are written, and lost, together."""

    task: str
    number: int
    contexts: range
    policies: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.task} {self.contexts[0]}-{self.contexts[-1]}"

    def count_answers(self, grid: Grid) -> int:
        cells = grid.cells([policy for policy in grid.setting.policies if policy.name in self.policies])
        return sum(grid.questions(grid.task(self.task), index) for index in self.contexts) * cells


def rows_of(model: LoadedModel, grid: Grid, unit: Unit, index: int, max_kv_bytes: int) -> RowsByTable:
    """Runs one context of a unit and returns its rows. ``max_kv_bytes``: this worker's share of the bound on keys and
    values. The first context of the task is asked again after the first and the last context of a unit."""
    task, policies = grid.task(unit.task), [one for one in grid.setting.policies if one.name in unit.policies]
    setting = replace(grid.setting, policies=policies, max_kv_bytes=max_kv_bytes)
    ends = (unit.contexts[0], unit.contexts[-1])
    with same_full_answers(model, task, grid.example(task, 0), setting, ask_again=index in ends):
        return collect(model, task, [grid.example(task, index)], setting, partial(grid.donor, task))


def check_first_contexts(model: LoadedModel, grid: Grid) -> None:
    """Raises :class:`KVBenchError` before anything is written if the model cannot read the first context of a task, or
    any context of a task whose contexts were given and are of any length."""
    for task, contexts in grid.tasks:
        for index in range(1 if task.most is None else contexts):
            for prompt in build_prompts(model.tokenizer, task, grid.example(task, index), grid.setting.mode):
                check_length(model, prompt, task.max_new_tokens)
