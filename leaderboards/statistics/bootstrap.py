"""The cluster bootstrap: questions about one context are not independent, so contexts are
resampled, not questions.

``scipy.stats.bootstrap`` cannot do it: it draws single values, or pairs of them, and knows no
clusters of different sizes; its resamples are as many as there are values; and it draws them anew
for each statistic, where here two policies under one seed meet the same contexts.

Percentile interval of A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application
(1997), section 3.8: whole clusters are drawn with replacement, somewhat fewer than there are
(:func:`count_draws`)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

from leaderboards.statistics.context_sums import ContextSums, sum_by_context, sum_values_present

FloatArray = NDArray[np.float64]

# So many leave 50 beyond either end of a 95 % interval.
RESAMPLES = 2000
LEVEL = 0.95
# How often, in percent, intervals of 95 % from so many contexts hold the truth, in 4,000 simulated
# runs whose contexts have normally distributed means; tests/statistics/test_statistics.py simulates
# some of them again.
COVERAGE = {2: 51, 3: 75, 4: 89, 5: 95, 6: 95, 7: 94, 8: 94, 9: 94, 10: 94, 12: 95, 16: 94, 32: 95}
DIGITS = 9  # of a measure, beyond which values differ by the noise of sums alone
FLAT = 10.0**-DIGITS
LEAST_P = 1e-12  # what a tail of a normal distribution can say at all


def resampled_means(
    values: Sequence[float] | FloatArray,
    clusters: Sequence[str] | NDArray[np.str_] | NDArray[np.intp],
    seed: int,
    resamples: int = RESAMPLES,
    weights: FloatArray | None = None,
) -> FloatArray | None:
    """Returns the mean over questions of each resample, shape (resamples,); with ``weights`` the
    sum of the values over that of the weights, NaN where that is 0. Under one seed the same
    contexts meet the same resamples; a mean over tasks averages these arrays, with a seed for each
    task."""
    numbers = np.asarray(values, dtype=np.float64)
    sums = sum_values_present(numbers, np.asarray(clusters), weights)
    # A single context is resampled into itself: an interval without width would look like
    # certainty.
    if sums.contexts < 2:
        return None
    return resampled_ratios(sums, seed, resamples)


def resampled_ratios(sums: ContextSums, seed: int, resamples: int = RESAMPLES) -> FloatArray:
    """Returns the sum over the count in each resample of contexts, shape (..., resamples), for sums
    of shape (..., contexts)."""
    weights = cluster_weights(sums.contexts, seed, resamples)
    stacked = sums.stacked()
    *before, clusters = stacked.shape
    flat = stacked.reshape(-1, clusters)
    # How often each context is drawn, times its sums: one product of matrices makes all resamples
    # of all measures at once.
    drawn = (flat @ weights.T).reshape(*before, resamples)
    # A resample may draw only contexts without an answer. Its NaN is kept, and Estimate.of judges
    # how many such there are.
    with np.errstate(invalid="ignore"):
        ratios: FloatArray = drawn[..., 0, :] / drawn[..., 1, :]
    return ratios


def percentile_interval(means: FloatArray, level: float = LEVEL) -> tuple[float, float]:
    """Returns the central interval that holds ``level`` of ``means``, shape (resamples,)."""
    low, high = percentile_intervals(means[None], level)
    return float(low[0]), float(high[0])


def percentile_intervals(means: FloatArray, level: float = LEVEL) -> tuple[FloatArray, FloatArray]:
    """Returns both ends for each row of ``means``, shape (rows, resamples)."""
    # np.quantile finds the same two places, and takes ten times as long as the sorting to prepare
    # for all others.
    ordered = np.sort(means, axis=1)
    return _quantile(ordered, (1 - level) / 2), _quantile(ordered, (1 + level) / 2)


def _quantile(ordered: FloatArray, share: float) -> FloatArray:
    """Interpolates linearly between the two nearest values of each row, as numpy does."""
    last = ordered.shape[1] - 1
    whole, rest = divmod(share * last, 1)
    place = int(whole)
    below = ordered[:, place]
    # A share of 1 has no value above it.
    above = ordered[:, min(place + 1, last)]
    quantiles: FloatArray = below + rest * (above - below)
    return quantiles


def bootstrap_p(resampled: FloatArray) -> float:
    """Returns the two-sided p that a difference is 0, from the resamples on either side of it,
    shape (resamples,): below 0.05 about where the 95 % interval leaves out 0, and never 0. [A. C.
    Davison and D. V. Hinkley (1997), section 4.2]

    Where all are on one side, their number alone would bound it, and corrected over many policies
    nothing could be told from anything: p is then the tail of a normal distribution of their mean
    and spread, if that is smaller. Resamples without a value (NaN) count for either side."""
    # ``~(x > 0)`` and not ``x <= 0``: a comparison with NaN is False, and a resample without a
    # value shall count for both sides.
    fewer = min(np.sum(~(resampled > 0)), np.sum(~(resampled < 0)))
    # The sample that was measured counts as one of those that chance draws, so that p is never 0.
    counted = min(1.0, 2 * float(fewer + 1) / (len(resampled) + 1))
    if fewer:
        return counted
    # Resamples that all agree have no spread to divide by.
    spread = max(float(np.std(resampled)), FLAT)
    distance = abs(float(np.mean(resampled))) / spread
    tails = 2 * float(ndtr(-distance))
    return min(counted, max(tails, LEAST_P))


def task_seed(seed: int, task: str) -> int:
    """Derives a seed for a task, so that it is resampled independently of whatever else is in the
    run."""
    # Not hash(), which Python salts anew in each process.
    digest = hashlib.sha256(f"{seed}/{task}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def count_draws(clusters: int) -> int:
    """Returns how many of so many clusters a resample draws.

    Draws of all n have (n - 1) / n times the variance that they should have: hence n - 1 draws [J.
    N. K. Rao and C. F. J. Wu, JASA 83 (1988), 231-241]. The spread of few contexts is itself
    uncertain: hence fewer still, so that an interval is as wide as that of Student's t."""
    tail = (1 - LEVEL) / 2
    freedom = clusters - 1
    narrower = float(ndtri(tail) / stdtrit(max(freedom, 1), tail))  # the normal quantile is smaller
    # Student's quantile is wider than the normal one; draws are fewer by the square of that, as a
    # variance goes with one over their number.
    return max(1, round(freedom * narrower**2))


# Every policy at every ratio asks for the same weights, and drawing them is most of the work.
@lru_cache(maxsize=16)
def cluster_weights(clusters: int, seed: int, resamples: int, times: int = 1) -> FloatArray:
    """Counts how often each cluster is drawn in each resample, shape (resamples, clusters).
    ``times``: how many times as many clusters, which vary as these do, a resample stands for."""
    generator = np.random.default_rng(seed)
    draws = count_draws(clusters)
    if times > 1:
        # These vary (n - 1) / n times as much as all clusters do, as many of them as there may be.
        draws = max(1, round(count_draws(times * clusters) * (clusters - 1) / clusters))
    drawn = generator.multinomial(draws, np.full(clusters, 1 / clusters), size=resamples)
    # In this order a sum over clusters is a few long additions.
    weights = drawn.astype(np.float64, order="F")
    # The cache hands out this very array: whoever wrote into it would change the intervals of all
    # others.
    weights.flags.writeable = False
    return weights


ENOUGH = 0.95  # of the resamples must have a value


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, None from a single cluster. ``n``: values that it is the mean
    of."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Returns both ends; None where there is no interval."""
        if self.low is None or self.high is None:
            return None
        return self.low, self.high

    @classmethod
    def within(cls, mean: float, ends: tuple[float, float] | None, n: int) -> Self:
        """Makes an estimate of a mean and the ends of its interval, if it has any."""
        low, high = ends or (None, None)
        return cls(mean, low, high, n)

    @classmethod
    def of(cls, mean: float, resampled: FloatArray | None, n: int) -> Self:
        """Makes an estimate with the percentile interval of ``resampled``, shape (resamples,); None
        of one cluster. Resamples without a value (NaN) are left out; where they are many, there is
        no interval, as the rest are not like them."""
        if resampled is None:
            return cls(mean, None, None, n)
        with_value = resampled[~np.isnan(resampled)]
        if not len(with_value) or len(with_value) < ENOUGH * len(resampled):
            return cls(mean, None, None, n)
        low, high = percentile_interval(with_value)
        return cls(mean, low, high, n)


@dataclass(frozen=True)
class Blank:
    """Stands where there is no value, and says why there is none."""

    reason: str
    short: str = ""  # the reason in a few words, which stand in the place of the value


Clusters = NDArray[np.intp]
# In half of the resamples the cluster more is at the other bound: with a power of log 0.025 / log
# 0.05 of a uniform number the interval is that of Clopper and Pearson all the same, where all
# clusters agree.
POWER_OF_SHARE = float(np.log(0.025) / np.log(0.05))


def _one_more(clusters: int, seed: int, resamples: int) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Draws how much one cluster more weighs in each resample, as a part of all others, and whether
    it is at the upper bound. Its share of the whole has a beta distribution, as in the Bayesian
    bootstrap [D. B. Rubin, Annals of Statistics 9 (1981), 130-134]."""
    generator = np.random.default_rng(seed)
    weights = generator.random(resamples) ** (-POWER_OF_SHARE / clusters) - 1
    return weights, generator.random(resamples) < 0.5


@dataclass(frozen=True)
class Resampler:
    """Resamples clusters, which are contexts that were drawn together; they go by their numbers.
    ``weights``: how often each is there, as measured, then as drawn in each resample, shape (1 +
    resamples, clusters)."""

    weights: FloatArray
    seed: int = 0
    times: int = 1  # how many times as many clusters each resample stands for

    @classmethod
    def of(cls, count: int, seed: int = 0, times: int = 1) -> Self:
        """Draws the resamples of so many clusters; the same seed draws the same."""
        drawn = cluster_weights(count, seed, RESAMPLES, times)
        # The first row is the sample as it was measured, so that a ratio or an area is computed of
        # it and of its resamples by the same code.
        return cls(np.concatenate([np.ones((1, count)), drawn]), seed, times)

    @property
    def count(self) -> int:
        """Counts the clusters."""
        return int(self.weights.shape[1])

    def sums(self, values: FloatArray, clusters: Clusters) -> FloatArray:
        """Adds up a number of each answer: shape (1 + resamples,). ``values``, ``clusters``: shape
        (answers,)."""
        by_context = sum_by_context(np.asarray(values, np.float64), clusters, self.count)
        sums: FloatArray = self.weights @ by_context.sums
        return sums

    def means(
        self,
        values: FloatArray,
        clusters: Clusters,
        bounds: tuple[float, float] | None = None,
        name: str = "",
    ) -> FloatArray:
        """Averages a number of each answer: shape (1 + resamples,); NaN where none of their
        clusters is drawn.

        Where all clusters agree, their resamples do too, which says nothing of other clusters.
        Values between ``bounds`` therefore meet one cluster more in each resample, all at one of
        the bounds; ``name``: of what is averaged, whose cluster is one and the same wherever it is
        averaged again."""
        by_context = sum_by_context(np.asarray(values, np.float64), clusters, self.count)
        sums: FloatArray = self.weights @ by_context.sums
        counts: FloatArray = self.weights @ by_context.counts
        if bounds is not None and self.count > 1:
            lowest, highest = bounds
            seed = task_seed(self.seed, name)
            parts, at_top = _one_more(self.times * self.count, seed, len(sums) - 1)
            # As a part of what this resample drew: contexts have different numbers of answers.
            weights = parts * counts[1:]
            # The first stays as it was measured: the context more gives width, and must not move
            # the mean.
            sums[1:] += weights * np.where(at_top, highest, lowest)
            counts[1:] += weights
        with np.errstate(invalid="ignore"):
            means: FloatArray = sums / counts
        return means

    def make_estimate(self, means: FloatArray, n: int) -> Estimate:
        """Makes an estimate of a measure of shape (1 + resamples,), without an interval from a
        single cluster."""
        resampled = None
        if self.count > 1:
            resampled = means[1:]
        return Estimate.of(float(means[0]), resampled, n)
