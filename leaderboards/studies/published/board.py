"""kvpress's public leaderboard on RULER at 4,096 tokens, and what of its order a model confirms.

``board.csv`` is the board as the repository lapidoty/kvpress-centrality keeps it (Apache-2.0): Llama 3.1 8B and Qwen3
8B, 500 items a task.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np

from datasets_gen import RULER
from leaderboards.aggregate.evidence import Evidence, NoEvidenceError, TaskEvidence
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from policies.declaration.lazy import LazyModule

stats = LazyModule("scipy.stats")  # its import takes half a second, and few sites need it

NEEDLES = tuple(name for name in RULER if name.startswith("niah_"))
RATIOS = (0.25, 0.5, 0.75)
LLAMA, QWEN = MODELS = ("Llama-3.1-8B-Instruct", "Qwen3-8B")
# Our policies by the board's names, for each order of compression and question.
OURS: Mapping[str, Mapping[str, str]] = {
    "agnostic": {
        "kvzip": "kvzip",
        "fastkvzip": "fastkvzip",
        "expected_attention": "adakv_expected_attention",
        "adakv_compactor": "adakv_compactor",
        "keydiff": "keydiff",
        "lagkv": "lagkv",
        "cur": "cur",
        "tova": "tova",
        "snapkv": "snapkv",
        "pyramidkv": "pyramidkv",
        "streaming_llm": "streaming_llm",
        "observed_attention": "h2o",
        "knorm": "knorm",
        "random": "random",
        "qfilter": "qfilter",
        "duo_attention": "duo_attention",
    },
    "aware": {"chunkkv": "chunkkv_snapkv", "adakv_snapkv": "adakv_snapkv", "finch": "finch", "snapkv": "snapkv"},
}
APART = 5.0  # points on both models, in the same direction, from which on a pair is in the key
FLOOR, CEILING = 5.0, 95.0  # a task tells nothing of two policies that are both below the one or above the other
CLEAN = 0.6  # of the golds, which the full cache must find


@dataclass(frozen=True)
class Pair:
    """Two policies that both models of the board put in the same order."""

    better: str
    worse: str
    ratio: float
    apart: Mapping[str, float]  # points, by model of the board


@dataclass(frozen=True)
class Judged:
    """A pair on another model. ``difference``: the better minus the worse in points, over ``tasks``; None where no task
    tells the two apart from the floor or the ceiling."""

    pair: Pair
    difference: Estimate | None
    tasks: tuple[str, ...]

    @property
    def verdict(self) -> str:
        if self.difference is None or self.difference.low is None or self.difference.high is None:
            return "not measured"
        if self.difference.low > 0:
            return "same order"
        return "reversed" if self.difference.high < 0 else "cannot tell"


@cache
def scores(mode: str) -> dict[tuple[str, float, str], float]:
    """Reads the mean over the needle tasks by model, ratio and our policy, in percent."""
    with (Path(__file__).parent / "board.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        (model, float(row["configured_ratio"]), OURS[mode][row["press_name"]]): float(
            np.mean([float(row[task]) for task in NEEDLES])
        )
        for row in rows
        for model in MODELS
        if row["model"].endswith(model)
        and (row["query_aware"] == "True") == (mode == "aware")
        and row["press_name"] in OURS[mode]
    }


@cache
def key(mode: str, ratio: float) -> tuple[Pair, ...]:
    """Lists the pairs that both models put at least :data:`APART` points apart in the same direction."""
    known = scores(mode)
    names = [name for name in OURS[mode].values() if all((model, ratio, name) in known for model in MODELS)]
    pairs = []
    for first, second in combinations(names, 2):
        apart = {model: known[model, ratio, first] - known[model, ratio, second] for model in MODELS}
        if min(apart.values()) >= APART:
            pairs.append(Pair(first, second, ratio, apart))
        elif max(apart.values()) <= -APART:
            pairs.append(Pair(second, first, ratio, {model: -points for model, points in apart.items()}))
    return tuple(pairs)


def separated(mode: str, ratio: float) -> int:
    """Counts the pairs that either model puts at least :data:`APART` points apart: of these the key has a part, which
    is what one 8B model has of the other's order."""
    known = scores(mode)
    names = [name for name in OURS[mode].values() if all((model, ratio, name) in known for model in MODELS)]
    return sum(
        any(abs(known[model, ratio, one] - known[model, ratio, other]) >= APART for model in MODELS)
        for one, other in combinations(names, 2)
    )


def tau(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Computes Kendall's tau-b over the policies that both have; None of fewer than three."""
    names = [name for name in first if name in second]
    if len(names) < 3:
        return None
    return float(stats.kendalltau([first[name] for name in names], [second[name] for name in names]).statistic)


class Order:
    """The order of policies on one model, from the records of its needles."""

    def __init__(self, evidence: Evidence, mode: str) -> None:
        self.mode = mode
        self.tasks: dict[str, TaskEvidence] = {}
        self._found: dict[tuple[str, str, float], FloatArray | None] = {}  # a policy is in a dozen pairs
        self.unknown: dict[str, float] = {}  # the tasks that the full cache cannot do, with what it finds in percent
        for task in evidence.tasks:
            if task in NEEDLES:
                of_task = evidence.of(task)
                found = float(of_task.mean("full", None, "golds_found")[0])
                if found >= CLEAN:
                    self.tasks[task] = of_task
                else:
                    self.unknown[task] = 100 * found

    def found(self, task: str, policy: str, ratio: float) -> FloatArray | None:
        """Returns the share of golds found in percent, shape (1 + resamples,); None of a policy that did not run."""
        cell = (task, policy, ratio)
        if cell not in self._found:
            try:
                self._found[cell] = 100 * self.tasks[task].mean(policy, ratio, "golds_found")
            except NoEvidenceError:
                self._found[cell] = None
        return self._found[cell]

    def means(self, ratio: float) -> dict[str, float]:
        """Averages each policy over the tasks, in percent."""
        means: dict[str, float] = {}
        for name in OURS[self.mode].values():
            of_tasks = [found for task in self.tasks if (found := self.found(task, name, ratio)) is not None]
            if of_tasks and len(of_tasks) == len(self.tasks):
                means[name] = float(np.mean([found[0] for found in of_tasks]))
        return means

    def judge(self, pair: Pair) -> Judged:
        """Sets two policies against one another on the tasks that can tell them apart."""
        differences = {}
        for task in self.tasks:
            better, worse = (self.found(task, name, pair.ratio) for name in (pair.better, pair.worse))
            if better is None or worse is None:
                continue
            if max(better[0], worse[0]) > FLOOR and min(better[0], worse[0]) < CEILING:
                differences[task] = better - worse
        if not differences:
            return Judged(pair, None, ())
        mean = np.mean(list(differences.values()), axis=0)
        contexts = min(self.tasks[task].contexts for task in differences)
        difference = Estimate.of(float(mean[0]), mean[1:] if contexts > 1 else None, contexts)
        return Judged(pair, difference, tuple(differences))

    def judged(self, ratios: Sequence[float] = RATIOS) -> Iterator[Judged]:
        for ratio in ratios:
            yield from map(self.judge, key(self.mode, ratio))
