"""Tests a mean over tasks by Student's t, with the contexts of each task as the sample.

A percentile bootstrap of few contexts is too sure: where two policies do not differ, it finds a difference in 8 to
15 of 100 comparisons of 4 to 8 contexts of one to five tasks, and this test in at most 5. If contexts vary lopsidedly
it is too sure as well, if less so: of exponentially distributed ones in 11 of 100 at 6 contexts of one task.
``tests/statistics/test_null_simulation.py`` simulates it again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import stdtr, stdtrit

from leaderboards.statistics.bootstrap import DIGITS, FloatArray
from leaderboards.statistics.significance import ALPHA, LEAST_P, POWER


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
