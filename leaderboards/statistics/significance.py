"""Tests one difference, also over few clusters, and corrects p-values where many are tested.

Correction over a family: S. Holm, Scandinavian Journal of Statistics 6 (1979), which bounds the chance of any false
claim; Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. B 57 (1995), which bounds the share of false ones.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, chdtrc, ndtr, stdtr, stdtrit

from leaderboards.statistics.bootstrap import DIGITS, RESAMPLES, FloatArray
from policies.declaration.lazy import LazyModule

multitest = LazyModule("statsmodels.stats.multitest")  # its import takes a second, and few families need it
ALPHA = 0.05
EXACT_BELOW = 25  # discordant questions, from which on chi-square is close enough
LEAST_P = 1e-12  # what a tail of a normal distribution can say at all
POWER = 0.8  # with which the smallest detectable difference is told from 0

ALL_UP_TO = 10  # clusters, of which all subsets are taken
SUBSETS = RESAMPLES - 1  # of more clusters: so many at random
# Points of percent: the median over 572 cells of comparisons by F1 on the model reference. By right answers it is 0.4 %
# more (of 2,310 cells of a run with 4 contexts a task).
USUAL_SPREAD = 16.0

Method = Literal["holm", "fdr_bh"]
Name = TypeVar("Name")


@dataclass(frozen=True)
class Family(Generic[Name]):
    """The tests that are corrected together. ``p``: corrected, under the names they were given."""

    name: str
    method: Method
    p: Mapping[Name, float]


def correct_p(p_values: Mapping[Name, float], family: str, method: Method = "holm") -> Family[Name]:
    """Corrects the p-values of the family ``family`` for how many there are: by Holm's method, or for the false
    discovery rate by Benjamini and Hochberg's (``fdr_bh``)."""
    given = np.array(list(p_values.values()))
    if not len(given):
        return Family(family, method, {})
    adjusted = _holm(given) if method == "holm" else multitest.multipletests(given, ALPHA, method=method)[1]
    return Family(family, method, {name: float(p) for name, p in zip(p_values, adjusted, strict=True)})


def _holm(p_values: FloatArray) -> FloatArray:
    """Corrects by Holm's method. Statsmodels also collects garbage, which takes half a second where torch is loaded."""
    order = np.argsort(p_values)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted


@lru_cache(maxsize=4096)  # counts are small, and a board asks for them thousands of times
def mcnemar_p(only_one: int, only_other: int) -> float:
    """Returns the two-sided p that each of two is as likely to be the only one that is right (Q. McNemar, Psychometrika
    12, 1947): exact below 25 such questions, else by chi-square with Edwards' continuity correction. Takes questions
    for independent, also those about one context."""
    discordant = only_one + only_other
    if discordant < EXACT_BELOW:
        return min(1.0, 2 * float(bdtr(min(only_one, only_other), discordant, 0.5)))
    return float(chdtrc(1, (abs(only_one - only_other) - 1) ** 2 / discordant))


def highest_unseen_share(contexts: int) -> float:
    """Returns the highest share of contexts that may change though none of so many does, with 95 % confidence:
    1 - 0.05 ** (1 / contexts), about 3 / contexts of many. [J. A. Hanley and A. Lippman-Hand, JAMA 249 (1983)]"""
    return float(1 - ALPHA ** (1 / contexts))


def bootstrap_p(resampled: FloatArray) -> float:
    """Returns the two-sided p that a difference is 0, from the resamples on either side of it, shape (resamples,):
    below 0.05 about where the 95 % interval leaves out 0, and never 0. [A. C. Davison and D. V. Hinkley (1997), section
    4.2]

    Where all are on one side, their number alone would bound it, and corrected over many policies nothing could be
    told from anything: p is then the tail of a normal distribution of their mean and spread, if that is smaller.
    Resamples without a value (NaN) count for either side.
    """
    fewer = min(np.sum(~(resampled > 0)), np.sum(~(resampled < 0)))
    counted = min(1.0, 2 * float(fewer + 1) / (len(resampled) + 1))
    if fewer:
        return counted
    spread = max(float(np.std(resampled)), 10.0**-DIGITS)
    return min(counted, max(2 * float(ndtr(-abs(float(np.mean(resampled))) / spread)), LEAST_P))


# A percentile bootstrap of few contexts is too sure: where two policies do not differ, it finds a difference in 8 to
# 15 of 100 comparisons of 4 to 8 contexts of one to five tasks, and this test in at most 5. If contexts vary
# lopsidedly it is too sure as well, if less so: of exponentially distributed ones in 11 of 100 at 6 contexts of one
# task. ``tests/statistics/test_null_simulation.py`` simulates it again.


@dataclass(frozen=True)
class StudentTest:
    """A mean, its standard error, and the degrees of freedom of that.

    ``least``: the chance that all contexts which differ do so on one side, below which p is not: a handful of values of
    0 and 1 may vary too little.
    """

    mean: float
    error: float
    freedom: float
    least: float

    @classmethod
    def of_tasks(cls, values: Sequence[FloatArray], differing: int) -> Self:
        """Takes the unweighted mean of the means of tasks, each of two contexts or more. ``values``: one for each
        context, an array for each task; ``differing``: how many contexts differ from 0. Tasks may vary differently and
        have different numbers of contexts: the degrees of freedom are those of B. L. Welch, Biometrika 34 (1947)."""
        variances = np.array([task.var(ddof=1) / len(task) for task in values])
        mean, total = float(np.mean([task.mean() for task in values])), float(variances.sum())
        error = math.sqrt(total) / len(values)
        if error < 10.0**-DIGITS:
            return cls(mean, 0.0, float(min(map(len, values)) - 1), 2.0 ** (1 - differing))
        freedom = total**2 / float(sum(variances**2 / [len(task) - 1 for task in values]))
        return cls(mean, error, freedom, 2.0 ** (1 - differing))

    @property
    def p(self) -> float:
        """Returns the two-sided p that the true mean is 0; never 0."""
        if abs(self.mean) < 10.0**-DIGITS:
            return 1.0
        tails = 2 * float(stdtr(self.freedom, -abs(self.mean) / self.error)) if self.error else 0.0
        return max(tails, self.least, LEAST_P)

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Returns the interval of ``1 - alpha``: it leaves out 0 exactly where p is below ``alpha``."""
        half = float(stdtrit(self.freedom, 1 - alpha / 2)) * self.error
        low, high = self.mean - half, self.mean + half
        return (min(low, 0.0), max(high, 0.0)) if self.p >= alpha else (low, high)

    def smallest(self, alpha: float = ALPHA, times: int = 1) -> float | None:
        """Returns the smallest true mean that is told from 0 at ``alpha`` four times in five, with so many
        ``times`` the contexts: (t(1 - alpha / 2) + t(0.8)) standard errors [H. S. Bloom, Evaluation Review 19 (1995)].
        None where contexts do not vary, which says nothing of others, and where so few tell nothing at ``alpha``."""
        if not self.error or 2 * (self.least / 2) ** times >= alpha:
            return None
        quantiles = stdtrit(times * self.freedom, 1 - alpha / 2) + stdtrit(times * self.freedom, POWER)
        return float(quantiles) * self.error / math.sqrt(times)


# The means of random subsets: if the clusters' values are symmetric about their mean, that mean lies between any two
# neighbours of the ordered means of all subsets equally often [J. A. Hartigan, JASA 64 (1969), 1303-1317]. The interval
# between two of them is the sign-flip test turned round: exact for any number of clusters, where a percentile bootstrap
# of a handful is too narrow.


@lru_cache(maxsize=64)  # every two policies ask for the same
def subsets(clusters: int, seed: int) -> FloatArray:
    """Returns which clusters each subset holds, as 0 and 1, shape (subsets, clusters); none is empty."""
    if clusters <= ALL_UP_TO:
        drawn = (np.arange(1, 2**clusters)[:, None] >> np.arange(clusters)) & 1
    else:
        random = np.random.default_rng(seed).integers(0, 2, (2 * SUBSETS, clusters))
        drawn = random[random.any(axis=1)][:SUBSETS]
    held: FloatArray = drawn.astype(np.float64, order="F")
    held.flags.writeable = False
    return held


def two_sided_p(means: FloatArray, highest: FloatArray | None = None) -> FloatArray:
    """Returns the two-sided p that the mean is 0, from the subset means of each row, shape (rows, subsets): (rows,).
    Means that are not known count for either side: ``means`` has minus infinity there and ``highest``, else the same,
    infinity."""
    fewer = np.minimum((means <= 0).sum(axis=1), ((means if highest is None else highest) >= 0).sum(axis=1))
    p: FloatArray = np.minimum(1.0, 2 * (fewer + 1) / (means.shape[1] + 1))
    return p


@dataclass(frozen=True)
class Tails:
    """The outermost subset means of one difference, from the lowest up and from the highest down, as far as intervals
    of 95 % and more reach. ``subsets``: how many means there are."""

    low: FloatArray
    high: FloatArray
    subsets: int

    @classmethod
    def of(cls, means: FloatArray, highest: FloatArray | None = None) -> list[Self]:
        """Takes the tails of each row, shape (rows, subsets); ``highest`` as in :func:`two_sided_p`."""
        reach = _place(means.shape[1], ALPHA)
        ordered = np.sort(means, axis=1)
        descending = (ordered if highest is None else np.sort(highest, axis=1))[:, ::-1]
        ends = ordered[:, :reach].copy(), descending[:, :reach].copy()
        return [cls(low, high, means.shape[1]) for low, high in zip(*ends, strict=True)]

    def interval(self, alpha: float) -> tuple[float, float] | None:
        """Returns the interval of ``1 - alpha``: it leaves out 0 exactly where :func:`two_sided_p` is below ``alpha``.
        None where so few clusters have no such interval."""
        place = _place(self.subsets, alpha)
        return None if place < 1 else (float(self.low[place - 1]), float(self.high[place - 1]))


def _place(count: int, alpha: float) -> int:
    """Returns the place from the end, counted from 1, of the mean where the interval of ``1 - alpha`` ends; 0 if there
    is none."""
    return int(np.ceil(alpha * (count + 1) / 2)) - 1


def fewest_clusters(alpha: float = ALPHA) -> int:
    """Returns the fewest clusters that can be told from chance at ``alpha``: 6 at 0.05."""
    return int(np.floor(np.log2(2 / alpha))) + 1


def smallest_detectable(spread: float, clusters: int, alpha: float = ALPHA) -> float | None:
    """Returns the smallest true mean difference that is told from 0 at two-sided ``alpha`` four times in five:
    (t(1 - alpha / 2) + t(0.8)) · spread / √clusters, with Student's t of clusters - 1 degrees of freedom [H. S. Bloom,
    Evaluation Review 19 (1995)]. ``spread``: the standard deviation of the clusters' differences. None of too few
    clusters to tell anything."""
    if clusters < fewest_clusters(alpha):
        return None
    quantiles = stdtrit(clusters - 1, 1 - alpha / 2) + stdtrit(clusters - 1, POWER)
    return float(quantiles) * spread / math.sqrt(clusters)


def clusters_to_detect(difference: float, spread: float = USUAL_SPREAD) -> int:
    """Returns the fewest clusters by which :func:`smallest_detectable` sees a difference."""
    return next(
        count
        for count in itertools.count(fewest_clusters())
        if (smallest_detectable(spread, count) or math.inf) <= difference
    )


def spread_of(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Returns the standard deviation of the clusters' means about the weighted mean, each cluster as heavy as it has
    values. ``values``: sums of clusters, shape (rows, clusters); ``weights``: their counts, shape (clusters,)."""
    count = len(weights)
    mean = values.sum(axis=1, keepdims=True) / weights.sum()
    off = (values - mean * weights) / weights.mean()
    spread: FloatArray = np.sqrt((off**2).sum(axis=1) / max(count - 1, 1))
    return spread


def step_down_levels(p_values: NDArray[np.float64]) -> FloatArray:
    """Returns the level at which Holm's method tests each p, shape (tests,): 0.05 over the number of those not yet
    rejected, and from the first that is not, the level of that one. Intervals of these levels leave out 0 exactly where
    the corrected p is below 0.05."""
    order = np.argsort(p_values, kind="stable")
    levels = ALPHA / np.arange(len(order), 0, -1)
    kept = np.flatnonzero(p_values[order] >= levels)
    if len(kept):
        levels[kept[0] :] = levels[kept[0]]
    adjusted = np.empty_like(levels)
    adjusted[order] = levels
    return adjusted
