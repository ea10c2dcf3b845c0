"""Fits how many independent routes explain that evidence is reached: where a cliff may come from.

If evidence can reach the answer by k routes that are each open with probability p, independently, then P(reach) =
1 - (1 - p)^k [Proposition 1 of arXiv 2603.01426]. With p the share of the slots that are left, k is fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leaderboards.statistics.bootstrap import RESAMPLES, cluster_weights, percentile_interval
from policies.declaration.lazy import LazyModule

optimize = LazyModule("scipy.optimize")  # its import takes a fifth of a second, and few sites need it
FloatArray = npt.NDArray[np.float64]
MOST = 1e6  # routes: more are not told apart from infinitely many


@dataclass(frozen=True)
class Fit:
    """Holds the number of independent routes, with its interval where there are two contexts at least. 0: no evidence
    is ever reached; infinite: it always is."""

    routes: float
    low: float | None
    high: float | None


def chance_to_reach(open_share: FloatArray, routes: float) -> FloatArray:
    """Returns 1 - (1 - p)^k."""
    reached: FloatArray = -np.expm1(routes * np.log1p(-np.minimum(open_share, 1 - 1e-15)))
    return reached


def fit_routes(open_share: FloatArray, reached: FloatArray, answers: FloatArray) -> float:
    """Returns the most likely k. By share p: how many answers' evidence is reached, of how many.

    A share of 0 or 1 says nothing of k and is left out. NaN if nothing else is there.
    """
    inner = (open_share > 0) & (open_share < 1) & (answers > 0)
    closed = np.log1p(-open_share[inner])  # of one route, its logarithm
    hits, misses = reached[inner], answers[inner] - reached[inner]
    if not inner.any():
        return float("nan")
    if not hits.any():
        return 0.0
    if not misses.any():
        return float("inf")

    def derivative(log_routes: float) -> float:
        """Returns that of the log-likelihood in k, which falls as k grows."""
        power = np.exp(log_routes) * closed
        return float((closed * (misses + hits * np.exp(power) / np.expm1(power))).sum())

    low, high = -np.log(MOST), np.log(MOST)
    if derivative(high) > 0:
        return float("inf")
    return float(np.exp(optimize.brentq(derivative, low, high)))


def fit(
    open_share: Sequence[float],
    reached: Sequence[bool],
    contexts: Sequence[str],
    seed: int,
    resamples: int = RESAMPLES,
) -> Fit:
    """Fits k to answers, with an interval by the cluster bootstrap over contexts.

    By answer: ``open_share``, the share p of the slots that are left, as its policy was asked; ``reached``;
    ``contexts``, whose questions are not independent.
    """
    shares, of_share = np.unique(np.asarray(open_share, dtype=np.float64), return_inverse=True)
    names, of_context = np.unique(np.asarray(contexts), return_inverse=True)
    counts = np.zeros((2, len(names), len(shares)))  # reached, and all
    np.add.at(counts[0], (of_context, of_share), np.asarray(reached, dtype=np.float64))
    np.add.at(counts[1], (of_context, of_share), 1.0)
    routes = fit_routes(shares, *counts.sum(axis=1))
    if len(names) < 2:
        return Fit(routes, None, None)
    weights = cluster_weights(len(names), seed, resamples)
    drawn = [fit_routes(shares, *of_resample) for of_resample in np.stack([weights @ of for of in counts], axis=1)]
    known = np.minimum([value for value in drawn if not np.isnan(value)], MOST)
    low, high = percentile_interval(known)
    return Fit(routes, low, float("inf") if high >= MOST else high)
