"""Estimates the share of answers of which something is true."""

from typing import Any

import numpy as np

from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.context_sums import sum_values_present
from leaderboards.statistics.intervals import mean_interval


def estimate_share(flags: Any, contexts: Any) -> Estimate:
    """Estimates the share of answers of which something is true, with the interval of a share over
    contexts. ``flags``, ``contexts``: of each answer, shape (answers,)."""
    numbers = np.asarray(flags, dtype=np.float64)
    names = np.asarray(contexts, dtype=str)
    values = sum_values_present(numbers, names).values
    ends = None
    if len(values) > 1:
        low, high = mean_interval(values)
        ends = float(low), float(high)
    return Estimate.within(float(numbers.mean()), ends, len(numbers))
