"""Numbers the contexts of what the tables of a study hold, and resamples them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leaderboards.statistics.bootstrap import FloatArray, task_seed
from leaderboards.statistics.resampling import Resampler


@dataclass(frozen=True)
class Contexts:
    """Numbers the contexts of some answers. ``weights``: how often each is there, as measured, then as drawn in each
    resample, shape (1 + resamples, contexts)."""

    numbers: NDArray[np.intp]
    weights: FloatArray

    @classmethod
    def of(cls, contexts: "NDArray[np.str_]", seed: int, experiment: str) -> "Contexts":
        """Numbers them by their names; the same seed and experiment draw the same resamples."""
        names, numbers = np.unique(contexts, return_inverse=True)
        drawn = Resampler.of(len(names), task_seed(seed, experiment)).weights
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
