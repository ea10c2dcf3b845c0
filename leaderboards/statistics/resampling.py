"""Takes many measures of the same resamples, because measures that are compared have to vary together."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from leaderboards.statistics.bootstrap import RESAMPLES, FloatArray, cluster_weights, percentile_interval

ENOUGH = 0.95  # of the resamples must have a value


def interval_of(low: float | None, high: float | None) -> tuple[float, float] | None:
    """Returns both ends, or None where there is no interval."""
    return None if low is None or high is None else (low, high)


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, None from a single cluster. ``n``: values that it is the mean of."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        return interval_of(self.low, self.high)

    @classmethod
    def of(cls, mean: float, resampled: FloatArray | None, n: int) -> Self:
        """Estimates a mean with its interval. It leaves out resamples without a value (NaN); where they are many, there
        is no interval, as the rest are not like them."""
        known = resampled[~np.isnan(resampled)] if resampled is not None else np.empty(0)
        enough = resampled is not None and 0 < len(known) >= ENOUGH * len(resampled)  # none of one cluster
        low, high = percentile_interval(known) if enough else (None, None)
        return cls(mean, low, high, n)


@dataclass(frozen=True)
class Blank:
    """Stands where there is no value, and says why there is none."""

    reason: str
    short: str = ""  # the reason in a few words, which stand in the place of the value


Clusters = NDArray[np.intp]


@dataclass(frozen=True)
class Resampler:
    """Draws resamples of ``count`` clusters, which are contexts that were drawn together; they go by their numbers.
    ``weights``: how often each is drawn, shape (resamples, count)."""

    count: int
    weights: FloatArray

    @classmethod
    def of(cls, count: int, seed: int = 0, resamples: int = RESAMPLES) -> Self:
        return cls(count, cluster_weights(count, seed, resamples))

    @property
    def many(self) -> bool:
        """Tells whether there is more than one cluster: a single one has no interval."""
        return self.count > 1

    def means(self, values: FloatArray, clusters: Clusters) -> FloatArray:
        """Returns the mean of some values in each resample, shape (resamples,); NaN where none of their clusters is in
        it."""
        sums = np.bincount(clusters, weights=values, minlength=self.count)
        with np.errstate(invalid="ignore"):
            means: FloatArray = (self.weights @ sums) / (self.weights @ np.bincount(clusters, minlength=self.count))
        return means

    def estimate_of(self, means: FloatArray, n: int) -> Estimate:
        """Makes an estimate of a measure of shape (1 + resamples,): first as measured, then as resampled."""
        return Estimate.of(float(means[0]), means[1:] if self.many else None, n)

    def estimate(self, values: FloatArray, clusters: Clusters) -> Estimate:
        return Estimate.of(float(np.mean(values)), self.means(values, clusters) if self.many else None, len(values))
