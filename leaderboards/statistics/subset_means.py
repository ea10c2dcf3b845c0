"""Tests the mean over few clusters, and gives its interval, by means of random subsets of them.

If the clusters' values are symmetric about their mean, that mean lies between any two neighbours of the ordered means
of all subsets equally often [J. A. Hartigan, JASA 64 (1969), 1303-1317]. The interval between two of them is the
sign-flip test turned round: exact for any number of clusters, where a percentile bootstrap of a handful is too narrow.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from leaderboards.statistics.bootstrap import RESAMPLES, FloatArray
from leaderboards.statistics.significance import ALPHA, POWER

ALL_UP_TO = 10  # clusters, of which all subsets are taken
SUBSETS = RESAMPLES - 1  # of more clusters: so many at random
# Points of percent: the median over 572 cells of comparisons by F1 on the model reference. By right answers it is 0.4 %
# more (of 2,310 cells of a run with 4 contexts a task).
USUAL_SPREAD = 16.0


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
    return _quantiles(clusters - 1, alpha) * spread / math.sqrt(clusters)


def clusters_to_detect(difference: float, spread: float = USUAL_SPREAD) -> int:
    """Returns the fewest clusters by which :func:`smallest_detectable` sees a difference."""
    return next(
        count
        for count in itertools.count(fewest_clusters())
        if (smallest_detectable(spread, count) or math.inf) <= difference
    )


@lru_cache(maxsize=4096)  # a site asks for the same ones thousands of times
def _quantiles(freedom: int, alpha: float) -> float:
    return float(stdtrit(freedom, 1 - alpha / 2) + stdtrit(freedom, POWER))


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
