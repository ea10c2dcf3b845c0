"""The experiment of claims R4 to R6: attention, hidden states and routes over ratios, and what is resampled of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from leaderboards.claims.declaration import Experiment
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.routing.routes import ONE_FACT, MasteredTasks
from leaderboards.statistics.bootstrap import FloatArray, task_seed
from leaderboards.statistics.resampling import Resampler

# The tasks, policies and levels of the suite ``routing``, so that a finished run of it lends its answers.
OBSERVED = Experiment(
    name="heads",
    tasks=f"{ONE_FACT},hops",
    policies="streaming_llm,snapkv,knorm,tova,h2o",
    levels=(("ratio", "0.3,0.5,0.7,0.8,0.9,0.95"),),
    contexts=12,
    observe="attention,states,routes",
)


@dataclass(frozen=True)
class Observed:
    """What was observed of the tasks that the model can do."""

    records: DataFrame
    tables: Mapping[str, DataFrame]
    seed: int
    left_out: str  # says which tasks it cannot do, if any

    @classmethod
    def of(cls, evidence: Mapping[str, Evidence], name: str = OBSERVED.name) -> "Observed":
        """Takes the evidence of an experiment; :class:`NoEvidenceError` where the model can do none of its tasks."""
        given, routes = evidence[name], MasteredTasks.of(evidence, name)
        tasks = [task.task for task in routes.tasks]
        return cls(given.records[given.records["task"].isin(tasks)], given.tables, given.seed, routes.left_out)

    def table(self, name: str) -> DataFrame:
        """Returns the rows of a table about these tasks; :class:`NoEvidenceError` where there are none."""
        table = self.tables.get(name)
        if table is None or table.empty:
            raise NoEvidenceError(f"nothing was observed: there is no table {name}")
        return table[table["task"].isin(self.records["task"].unique())]


@dataclass(frozen=True)
class Contexts:
    """Numbers the contexts of some answers. ``weights``: how often each is there, as measured, then as drawn in each
    resample, shape (1 + resamples, contexts)."""

    numbers: NDArray[np.intp]
    weights: FloatArray

    @classmethod
    def of(cls, contexts: "NDArray[np.str_]", seed: int) -> "Contexts":
        names, numbers = np.unique(contexts, return_inverse=True)
        drawn = Resampler.of(len(names), task_seed(seed, OBSERVED.name)).weights
        return cls(numbers, np.concatenate([np.ones((1, len(names))), drawn]))

    @property
    def count(self) -> int:
        return int(self.weights.shape[1])

    def sums(self, values: FloatArray) -> FloatArray:
        """Adds up a number of each answer: shape (1 + resamples,)."""
        sums: FloatArray = self.weights @ np.bincount(self.numbers, weights=values, minlength=self.count)
        return sums

    def mean(self, values: FloatArray) -> FloatArray:
        """Averages a number of each answer: shape (1 + resamples,)."""
        with np.errstate(invalid="ignore"):
            mean: FloatArray = self.sums(values) / self.sums(np.ones(len(values)))
        return mean
