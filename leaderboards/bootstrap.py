"""The cluster bootstrap: questions about one context are not independent, so contexts are resampled, not questions.

Percentile interval of A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application (1997), section 3.8:
whole clusters are drawn with replacement. With a handful of contexts it is too narrow, as every percentile bootstrap.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95


def resampled_means(
    values: Sequence[float] | FloatArray,
    clusters: Sequence[str] | NDArray[np.str_] | NDArray[np.intp],
    seed: int,
    resamples: int = RESAMPLES,
) -> FloatArray | None:
    """The mean over questions of each resample, shape (resamples,).

    Policies that answered the same contexts meet the same resamples under one seed. A mean over tasks is resampled by
    averaging these arrays, drawn with one seed for each task.
    """
    numbers = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(numbers)
    names, positions = np.unique(np.asarray(clusters)[known], return_inverse=True)
    if len(names) < 2:
        return None
    sums = np.bincount(positions, weights=numbers[known])
    counts = np.bincount(positions).astype(np.float64)
    weights = cluster_weights(len(names), seed, resamples)
    means: FloatArray = (weights @ sums) / (weights @ counts)
    return means


def percentile_interval(means: FloatArray, level: float = LEVEL) -> tuple[float, float]:
    """The central interval that holds ``level`` of ``means``."""
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# Every policy at every ratio asks for the same weights, and drawing them is most of the work.
@lru_cache(maxsize=16)
def cluster_weights(clusters: int, seed: int, resamples: int) -> FloatArray:
    """How often each cluster is drawn in each resample, shape (resamples, clusters)."""
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples).astype(np.float64)
    drawn.flags.writeable = False
    return drawn
