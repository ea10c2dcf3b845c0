"""A read profile says where a model reads its context: which right answers are lost with which rows of the cache.

After the context was read undisturbed, keys and values of some of its rows are replaced with noise of the mean and
spread that the layer's own have, and the questions are asked. A model that reads in one layer cannot show what layer
and head budgets do, nor what it means that a token is gone from all of them. The treatments are those of any run, so
that every architecture has a profile; all share the prefill of a context.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import pandas as pd

from datasets_gen import Question, Task
from kvbench.checks.answering import answers_of
from kvbench.checks.findings import Begin, silent
from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from leaderboards.statistics.bootstrap import percentile_interval, resampled_means
from policies import FULL, Policy

SLOT_SHARE = 0.3  # of all (layer, head, token) slots, destroyed at random
PARTS = (("base", None), ("hops", 2))  # a task, and of how many facts the questions are that count; None: all
NOTHING, UPPER_HALF, SLOTS = "nothing", "the upper half", f"{SLOT_SHARE:.0%} of all slots"
BLOCKS = "▁▂▃▄▅▆▇█"


def part_name(task: str, hops: int | None) -> str:
    return task if hops is None else f"{task}, {hops} facts"


@dataclass(frozen=True)
class ReadProfile:
    """Exact match in percent: undisturbed, with the context's rows destroyed in each layer alone, in the upper half of
    the layers, and in a share of all slots."""

    part: str
    undisturbed: float
    without_layer: tuple[float, ...]
    without_upper_half: float
    without_slots: float

    @property
    def most_needed_layer(self) -> int:
        """Returns the number of the layer that the answers need most."""
        return self.without_layer.index(min(self.without_layer))

    @property
    def worst_layer(self) -> float:
        """Returns what that layer costs, in points."""
        return self.undisturbed - min(self.without_layer)

    @property
    def upper_half(self) -> float:
        """Returns what the upper half of the layers costs, in points."""
        return self.undisturbed - self.without_upper_half

    @property
    def slots(self) -> float:
        """Returns what the share of all slots costs, in points."""
        return self.undisturbed - self.without_slots

    @property
    def bars(self) -> str:
        """Draws what is still right without each layer, from 0 to 100 percent."""
        return "".join(BLOCKS[min(len(BLOCKS) - 1, int(one / 100 * len(BLOCKS)))] for one in self.without_layer)

    @property
    def lines(self) -> list[str]:
        """Writes the profile as lines to be printed."""
        layers = " ".join(f"{percent:.0f}" for percent in self.without_layer)
        return [
            f"{self.part}: {self.undisturbed:.0f} right; rows destroyed in each layer alone: {layers}",
            f"  costs: layer {self.most_needed_layer} {self.worst_layer:.0f}, {UPPER_HALF} {self.upper_half:.0f}, "
            f"{SLOTS} {self.slots:.0f}",
        ]


@dataclass(frozen=True)
class Loss:
    """The score that a model loses when rows of the cache are destroyed in one place."""

    destroyed: str  # the place
    right: float  # exact match in percent
    cost: float  # in points of it
    low: float | None  # the ends of the interval of the cost, over contexts; None for a single context
    high: float | None


@dataclass(frozen=True)
class Reads:
    """The answers that a read profile is made of."""

    part: str
    answers: pd.DataFrame  # one row for each question; a column for each place that is destroyed, by name: 0 or 100
    contexts: Sequence[str]  # the context of each question

    @cached_property
    def losses(self) -> dict[str, Loss]:
        """Returns the losses by place. Questions of a context stand together in a resample."""
        return {place: self._loss(place) for place in self.answers.columns}

    @property
    def count(self) -> int:
        """Counts the contexts."""
        return len(set(self.contexts))

    def _loss(self, place: str) -> Loss:
        costs = (self.answers[NOTHING] - self.answers[place]).to_numpy(dtype=float)
        means = resampled_means(costs, list(self.contexts), seed=0) if self.count > 1 else None
        low, high = (None, None) if means is None else percentile_interval(means)
        return Loss(place, float(self.answers[place].mean()), float(costs.mean()), low, high)

    @property
    def profile(self) -> ReadProfile:
        right = {place: loss.right for place, loss in self.losses.items()}
        layers = tuple(right[place] for place in right if place not in (NOTHING, UPPER_HALF, SLOTS))
        return ReadProfile(self.part, right[NOTHING], layers, right[UPPER_HALF], right[SLOTS])


def layer_name(number: int) -> str:
    return f"layer {number}"


def destroyers(layers: int) -> Mapping[str, Policy]:
    """Returns the treatments of a profile by the place that each destroys, in the order of a profile."""
    names = {NOTHING: FULL}
    names |= {layer_name(number): f"gaussian_matched(layers={number},rate=1)" for number in range(layers)}
    names |= {UPPER_HALF: "gaussian_matched(layers=H2,rate=1)", SLOTS: f"gaussian_matched(unit=row,rate={SLOT_SHARE})"}
    return {place: find_policy(name) for place, name in names.items()}


def counts(question: Question, hops: int | None) -> bool:
    """Tells whether a question belongs to a part."""
    return hops is None or question.hops == hops


def reads_of(
    model: LoadedModel, task: Task, hops: int | None, contexts: int, seed: int, begin: Begin = silent
) -> Reads:
    """Measures where a model reads, on contexts of a task's test split."""
    places = destroyers(model.network.config.get_text_config().num_hidden_layers)
    of_policy = {policy.name: place for place, policy in places.items()}
    rows = answers_of(model, task, list(places.values()), contexts, seed, partial(counts, hops=hops), begin=begin)
    right = rows.assign(place=rows["policy"].map(of_policy), right=rows["em"].astype(float))
    table = right.pivot(index=["example_id", "question_id"], columns="place", values="right")[list(places)]
    return Reads(part_name(task.name, hops), table, list(table.index.get_level_values("example_id")))
