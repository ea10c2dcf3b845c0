"""Estimates the share of answers of which something is true."""

from typing import Any

import numpy as np

from leaderboards.statistics.bootstrap import Estimate, cluster_sums
from leaderboards.statistics.intervals import context_values, mean_interval


def share_of(flags: Any, contexts: Any) -> Estimate:
    """Estimates the share of answers of which something is true, with the interval of a share over contexts."""
    numbers = np.asarray(flags, dtype=np.float64)
    values = context_values(*cluster_sums(numbers, np.asarray(contexts, dtype=str)))
    if len(values) < 2:
        return Estimate.within(float(numbers.mean()), None, len(numbers))
    low, high = mean_interval(values)
    return Estimate.within(float(numbers.mean()), (float(low), float(high)), len(numbers))
