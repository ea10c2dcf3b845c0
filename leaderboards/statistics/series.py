"""Estimates values at many places, such as steps or layers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from leaderboards.statistics.bootstrap import Estimate, FloatArray, resampled_ratios
from leaderboards.statistics.context_sums import sum_by_context


def average_columns(
    values: FloatArray, clusters: Sequence[str] | NDArray[np.str_], seed: int = 0
) -> list[Estimate | None]:
    """Averages each column of values with its interval over clusters, which are resampled as a
    whole; None where a column has no value. All columns meet the same resamples, also where some
    clusters have no value there.

    ``values``: of shape (rows, places), NaN where a row has no value. ``clusters``: of each row."""
    # One numbering for all places, so that steps or layers are set against one another in the same
    # resamples.
    names, numbers = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    by_place = values.T
    # A missing value is 0 in the sum and 0 in the count, and so enters neither mean nor resample.
    has_value = np.isfinite(by_place)
    present = np.where(has_value, by_place, 0.0)
    sums = sum_by_context(present, numbers, len(names), has_value.astype(np.float64))
    resampled = None
    if len(names) > 1:
        resampled = resampled_ratios(sums, seed)
    estimates: list[Estimate | None] = []
    totals = sums.stacked().sum(axis=2)
    for place, (total, count) in enumerate(totals):
        if not count:
            estimates.append(None)
            continue
        drawn = None
        # One cluster with a value is resampled into itself: there is no interval.
        if resampled is not None and np.count_nonzero(sums.counts[place]) > 1:
            drawn = resampled[place]
        estimates.append(Estimate.of(float(total / count), drawn, int(count)))
    return estimates
