"""Tells rounding from misalignment, by what two teacher-forced paths give at the same step and one step apart."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

Cause = Literal["identical", "rounding", "misaligned", "unexplained"]
FAR = 10.0  # times as near as its neighbours a step must be, so that rounding explains what is left


def cause_of(kl: Sequence[float], kl_earlier: Sequence[float], kl_later: Sequence[float]) -> Cause:
    """Names the cause of a difference between two paths, from their divergences at each step.

    ``kl_earlier`` and ``kl_later``: of the first path from the second one step before and behind. Where one of these is
    smaller than that at the same step, the second path was given its tokens one step too late or too early:
    *misaligned*. Where both are ten times as large, or more, the paths are aligned and *rounding* is left. Anything
    between is *unexplained*, also a single step, which has no neighbours.

    >>> cause_of([1e-6, 1e-6], [float("nan"), 9.0], [8.0, float("nan")])
    'rounding'
    >>> cause_of([9.0, 8.0], [float("nan"), 7.0], [1e-6, float("nan")])
    'misaligned'
    """
    here = np.asarray(kl, dtype=np.float64)
    if len(here) and not here.any():
        return "identical"
    shifted = [np.asarray(one, dtype=np.float64) for one in (kl_earlier, kl_later)]
    known = [one[np.isfinite(one)] for one in (here, *shifted)]
    if not all(map(len, known)):
        return "unexplained"
    same, *apart = (float(one.mean()) for one in known)
    if min(apart) < same:
        return "misaligned"
    return "rounding" if FAR * same <= min(apart) else "unexplained"
