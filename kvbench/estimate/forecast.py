"""Estimates how long a run takes and how many bytes it needs: ``run`` prints its time first, ``plan`` all of it.

The time of every part follows from one formula: it is bound by its operations or by the bytes that it reads,
max(operations / speed, bytes / bandwidth), and each layer takes some time of each pass, however little it computes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from statistics import mean, median
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from datasets_gen import Task
from kvbench.engine.decode.columns import PLACES_AT_ONCE
from kvbench.estimate.constants import TABLE, USABLE, Machine, this_machine
from kvbench.estimate.shape import DecoderShape, shape_of_network
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from kvbench.run.workers import Workers
from policies import Policy

QUADRATIC = 1.5  # a press looks at all pairs of tokens if its readings grow that much at four times the length
CONTEXTS_READ = 3  # of each task, to count their tokens and questions
BEHIND = 12  # tokens that an answer has behind its gold where it ends with its sentence or line: fewer, or all it may
SHARED = 0.75  # of its speed has a process beside others, with which it shares the memory
PAGE_SECONDS = 10.0  # that records, statistics and pages of a small run take


class PressCost(NamedTuple):
    """The cost of a press. Its unit is a reading: the time in which the machine reads the context's cache once."""

    short: float = 0.0  # readings to score a context of the shorter of two lengths
    long: float = 0.0  # and of the longer
    level: float = 0.0  # readings for each ratio
    prefills: float = 0.0  # for each ratio, of a press with a prefill of its own

    def readings(self, tokens: int, levels: int) -> float:
        """Counts the readings of a context: to score it takes as many at any length, or as many as are in proportion to
        the length if the press looks at all pairs of tokens."""
        grows = self.long > QUADRATIC * max(self.short, 1e-9)
        score = self.long * tokens / TABLE["lengths"][1] if grows else max(self.short, self.long)
        return score + levels * self.level


PRESSES = {name: PressCost(*numbers) for name, numbers in TABLE["presses"].items()}


def press_cost(policy: Policy) -> PressCost:
    """Returns the cost of a policy's press. If it was not measured, that is the median of its kind: of the presses with
    a prefill of their own, or of the others."""
    kind = [press for press in PRESSES.values() if (press.prefills > 0) == (policy.prefill == "private")]
    return PRESSES.get(policy.name) or PressCost(*map(median, zip(*kind, strict=True)))


@dataclass(frozen=True)
class Load:
    """The counts of one task."""

    task: str
    contexts: int
    tokens: int  # of a context
    questions: float  # about a context
    question_tokens: float  # of a question
    answer_tokens: int  # of an answer: as long as the task allows, unless it ends with its sentence or line
    gold_tokens: float  # of a right answer that are passed for its likelihood: all but the last
    branches: Sequence[tuple[Policy, Sequence[float]]]  # each policy, and which share of a context each branch holds
    prompts: float = 1.0  # of a context: one, or in mode aware one for each question

    @property
    def answers(self) -> float:
        return self.contexts * self.questions * sum(len(shares) for _, shares in self.branches)


def load_of(
    grid: Grid, task: Task, contexts: int, tokens: int | None = None, *, tokenizer: PreTrainedTokenizerBase
) -> Load:
    """Reads a few contexts of a task with the model's tokenizer; ``tokens`` replaces the count of every context."""
    mode = grid.setting.mode
    examples = [grid.example(task, index) for index in range(min(contexts, CONTEXTS_READ))]
    prompts = [prompt for example in examples for prompt in build_prompts(tokenizer, task, example, mode)]
    tokenized = [question for prompt in prompts for question in prompt.questions]
    golds = mean(max(0, len(question.gold_ids) - 1) for question in tokenized)
    # Where its sentence does not end an answer, a chat model writes on; the lines of a base model end.
    ends_early = (task.begins_answers and task.answer_end == "sentence") or tokenizer.chat_template is None
    tokens = tokens or round(mean(len(prompt.token_ids) for prompt in prompts))
    branches = []
    for policy in grid.policies_on(task):
        shares = [point.level.share(tokens) or 0.0 for point in grid.points(policy)]
        # A press that masks frees nothing.
        branches.append((policy, [1 - share if policy.frees else 1.0 for share in shares]))
    return Load(
        task.name,
        contexts,
        tokens,
        questions := len(tokenized) / len(examples),
        mean(len(question.token_ids) for question in tokenized),
        min(task.max_new_tokens, round(golds) + BEHIND) if ends_early else task.max_new_tokens,
        golds,
        branches,
        questions if mode == "aware" else 1.0,
    )


@dataclass(frozen=True)
class RunCost:
    """The time and the bytes of a run. A worker holds the weights and has as many devices as it needs for
    that; their layers work one after the other."""

    loads: Sequence[Load]
    shape: DecoderShape
    machine: Machine

    @property
    def context(self) -> int:
        """Returns the bytes of the cache of the longest context."""
        return ceil(max(load.tokens * self.shape.token_bytes(load.tokens) for load in self.loads))

    @property
    def masks(self) -> int:
        """Returns the bytes of the keep masks of all branches of a context: one for each token, layer and head."""
        most = max(load.tokens * sum(len(shares) for _, shares in load.branches) for load in self.loads)
        return most * self.shape.layers * self.shape.key_heads

    @property
    def needed(self) -> int:
        """Counts the bytes that a worker needs at least: weights, the longest context, its largest branch beside it,
        and the keep masks."""
        return self.shape.weight_bytes + 2 * self.context + self.masks

    @property
    def devices(self) -> int:
        return ceil(self.needed / (self.machine.memory * USABLE))

    @property
    def room(self) -> float:
        """Returns the bytes that a wave of branches may take."""
        return self.machine.memory * USABLE * self.devices - self.shape.weight_bytes - self.context - self.masks

    @cached_property
    def parts(self) -> list[tuple[str, str, float]]:
        """Lists the parts of the work, each with its policy, if it is for one alone, and the seconds of one worker."""
        return [
            (name, policy, load.contexts * load.prompts * seconds)
            for load in self.loads
            for name, policy, seconds in self._parts_of(load)
        ]

    @property
    def seconds(self) -> float:
        """Returns the time of one worker."""
        return sum(seconds for _, _, seconds in self.parts)

    def _seconds(self, load: Load, tokens: float, pairs: float, passes: float, cached: float = 0) -> float:
        """Returns the time of tokens that attend to others in pairs, where each pass reads all weights; ``cached``:
        tokens of which keys and values are read."""
        read = passes * self.shape.weight_bytes + cached * self.shape.token_bytes(load.tokens)
        return self.machine.seconds(self.shape.operations(tokens, pairs), read, passes * self.shape.layers)

    def _parts_of(self, load: Load) -> Iterator[tuple[str, str, float]]:
        """Yields the parts of the work on one context of a task."""
        size, together = load.tokens, list[float]()
        asked = load.questions / load.prompts  # from one prefill
        yield "prefill", "", self._seconds(load, size, size**2 / 2, 1)
        for policy, shares in load.branches:
            press, kept = press_cost(policy), sum(shares) * size
            times = len(shares) * press.prefills
            yield "private prefills", policy.name, self._seconds(load, times * size, times * size**2 / 2, times)
            copied = press.readings(size, len(shares)) * size * self.shape.token_bytes(size)
            yield "compression", policy.name, self.machine.seconds(0, 0, 0, copied)
            if not policy.while_decoding:
                together += shares
                continue
            # Every token of an answer reads weights and cache, and so does the right answer behind the question again.
            for name, length in (("answers written alone", load.answer_tokens), ("likelihood alone", load.gold_tokens)):
                tokens, passes = asked * (load.question_tokens + length), asked * (1 + length)
                work = len(shares) * tokens, tokens * kept, len(shares) * passes, passes * kept
                yield name, policy.name, self._seconds(load, *work)
        # Each wave reads the weights and its own cache for the start that questions share, for each portion of the
        # questions, for each portion of the right answers, and for each token of the answers.
        kept = sum(together) * size
        waves = ceil(kept * self.shape.token_bytes(size) / self.room)
        questions, golds = asked * load.question_tokens, asked * load.gold_tokens
        steps = 1 + ceil(questions / PLACES_AT_ONCE) + load.answer_tokens
        for name, tokens, passes in (
            ("answers written together", questions + asked * load.answer_tokens, steps),
            ("likelihood together", golds, ceil(golds / PLACES_AT_ONCE)),
        ):
            work = tokens * len(together), tokens * kept, passes * waves, passes * kept
            yield name, "", self._seconds(load, *work)


def hours(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s" if seconds >= 1 else "below 1 s"


def forecast_of(model: LoadedModel, grid: Grid) -> str:
    """Says in one line about how long a run takes, by the speed of this machine as it is now. Of a GPU it says nothing:
    none was at hand to try it on."""
    if model.device.type != "cpu":
        return ""
    network, threads = model.network, torch.get_num_threads()
    workers = Workers(model, sum(contexts for _, contexts in grid.tasks)).count
    torch.set_num_threads(1 if workers > 1 else threads)
    try:
        machine = this_machine(network.config.get_text_config().hidden_size, network.dtype.itemsize)
    finally:
        torch.set_num_threads(threads)
    shape = shape_of_network(model.name, network, network.dtype.itemsize)
    loads = [load_of(grid, task, contexts, tokenizer=model.tokenizer) for task, contexts in grid.tasks]
    seconds = RunCost(loads, shape, machine).seconds / workers
    seconds /= SHARED if workers > 1 else 1.0
    return f"forecast: about {hours(seconds + PAGE_SECONDS)} on this machine, the page included"
