"""Compares two policies on the same contexts: the mean difference, its interval and its test.

Two numbers are made of the differences of the contexts:

- an interval that has width also where no context differs (:class:`PairedDifference`), as a loss is
  called safe by what it may be and not by whether it is proven,
- a test. Over the tasks of a board it is Student's t with the degrees of freedom of Welch
  (:class:`StudentTest`): in one task ``scipy.stats.ttest_1samp`` has the same p, and scipy has no
  test of the mean of several tasks. In one cell it is that of random subsets
  (:class:`SubsetTest`), which is exact also for a handful of contexts.

Where a test tells a difference, its interval is shown; elsewhere one at least as wide as the first
(:meth:`MeanDifference.widened`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from scipy.special import stdtr, stdtrit

from leaderboards.statistics.bootstrap import DIGITS, FLAT, LEAST_P, RESAMPLES, Estimate
from leaderboards.statistics.context_sums import ContextSums, FloatArray
from leaderboards.statistics.intervals import (
    ALPHA,
    Moments,
    difference_interval,
    highest_difference,
    interval_over_tasks,
)
from leaderboards.statistics.text import signed_text

POWER = 0.8  # with which the smallest detectable difference is told from 0
# Of ten there are 1,023 subsets; all of eleven, 2,047, would be more than are drawn at random.
ALL_UP_TO = 10  # clusters, of which all subsets are taken
# The means of 1,999 subsets cut the line into 2,000 pieces, of which 2.5 % are a whole number.
SUBSETS = RESAMPLES - 1  # of more clusters: so many at random
WHOLE = 100.0  # points: shares cannot differ by more
MOST_CONTEXTS = 100_000  # beyond which a number of contexts says nothing


@dataclass(frozen=True)
class MeanDifference:
    """The mean difference of a measure in points, and its 95 % interval."""

    mean: float
    low: float | None  # None from too few contexts, and where resamples have no value
    high: float | None

    @classmethod
    def of(cls, estimate: Estimate, times: float = 1.0) -> Self:
        """Makes one of an estimated difference, which may have to be multiplied into points."""
        mean = times * estimate.mean
        if estimate.interval is None:
            return cls(mean, None, None)
        low, high = estimate.interval
        return cls(mean, times * low, times * high)

    @classmethod
    def widened(
        cls, mean: float, tested: tuple[float, float] | None, held: tuple[float, float]
    ) -> Self:
        """Makes a difference with the interval of a test. Where that holds 0, it reaches as far as
        the interval that is ``held`` also where nothing differs. A test of so few contexts that it
        has no interval gives none here, and one that leaves the scale of ±100 points is cut off
        there."""
        if tested is None:
            return cls(mean, None, None)
        low, high = max(tested[0], -WHOLE), min(tested[1], WHOLE)
        if low <= 0 <= high:
            return cls(mean, min(low, held[0]), max(high, held[1]))
        return cls(mean, low, high)

    @property
    def is_clear(self) -> bool:
        """Tells whether the interval leaves out 0."""
        if self.low is None or self.high is None:
            return False
        return not self.low <= 0 <= self.high

    @property
    def text(self) -> str:
        """Writes ``+12 [+3, +20]``, with as many digits, up to two, as tell its ends from 0."""
        if self.low is None or self.high is None:
            return signed_text(self.mean, 0)
        nearest = min(abs(self.low), abs(self.high))
        # An end nearer to 0 than 0.005 would read as 0 in two digits as well.
        if nearest >= 0.5 or nearest < 0.005:
            digits = 0
        elif nearest >= 0.05:
            digits = 1
        else:
            digits = 2
        ends = f"{signed_text(self.low, digits)}, {signed_text(self.high, digits)}"
        return f"{signed_text(self.mean, digits)} [{ends}]"


@dataclass(frozen=True)
class PairedDifference:
    """Holds by how much the answers of one policy are more, and by how much they are less, than
    those of another on the same questions: means of each context between 0 and 1, shape
    (contexts,). Of one answer, one of the two is 0."""

    more: FloatArray
    less: FloatArray

    @property
    def contexts(self) -> int:
        """Counts the contexts."""
        return len(self.more)

    @property
    def mean(self) -> float:
        """Returns the mean difference, a share."""
        return float((self.more - self.less).mean())

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Returns both ends for the mean difference, which have width also where no context
        differs."""
        low, high = difference_interval(self.more, self.less, alpha)
        return float(low), float(high)

    def contexts_below(self, bound: float) -> int | None:
        """Returns how many contexts show a difference below ``bound`` if more of them are as these
        are; None where no number does."""
        more = Moments.of(self.more)
        less = Moments.of(self.less)

        # More contexts of the same mean and variance can only narrow the interval: hence the search
        # by halves below.
        def shows(contexts: int) -> bool:
            up = more._replace(contexts=contexts)
            down = less._replace(contexts=contexts)
            return bool(highest_difference(up, down) < bound)

        if not shows(MOST_CONTEXTS):
            return None
        low, high = 1, MOST_CONTEXTS  # the fewest are above low, and at most high
        while high - low > 1:
            middle = (low + high) // 2
            if shows(middle):
                high = middle
            else:
                low = middle
        return high

    def contexts_above(self, bound: float) -> int | None:
        """Returns how many contexts show a difference above ``bound`` if more of them are as these
        are; None where no number does."""
        return PairedDifference(self.less, self.more).contexts_below(-bound)


def mean_difference_interval(
    by_task: Sequence[PairedDifference], alpha: float = ALPHA
) -> tuple[float, float]:
    """Returns both ends for the unweighted mean over tasks of paired differences, a share."""
    means, lows, highs = [], [], []
    for difference in by_task:
        low, high = difference.interval(alpha)
        means.append(difference.mean)
        lows.append(low)
        highs.append(high)
    lowest, highest = interval_over_tasks(np.array(means), np.array(lows), np.array(highs))
    return float(lowest), float(highest)


def fewest_clusters(alpha: float = ALPHA) -> int:
    """Returns the fewest clusters that can be told from chance at ``alpha``: 6 at 0.05."""
    # That n contexts all lie on one side has the chance 2 / 2 ** n, below which no p can be.
    return int(np.floor(np.log2(2 / alpha))) + 1


# A percentile bootstrap that draws as many contexts as there are is too sure of few: where two
# policies do not differ, it finds a difference in 8 to 15 of 100 comparisons of 4 to 8 contexts of
# one to five tasks, and this test in at most 5. If contexts vary lopsidedly it is too sure as well,
# if less so: of exponentially distributed ones in 11 of 100 at 6 contexts of one task.
# ``tests/statistics/test_null_simulation.py`` simulates it again.


@dataclass(frozen=True)
class StudentTest:
    """A mean, its standard error, and the degrees of freedom of that.

    ``least``: the chance that all contexts which differ do so on one side, below which p is not: a
    handful of values of 0 and 1 may vary too little."""

    mean: float
    error: float
    freedom: float
    least: float

    @classmethod
    def from_tasks(cls, values: Sequence[FloatArray], differing: int) -> Self:
        """Takes the unweighted mean of the means of tasks, each of two contexts or more.
        ``values``: for each task an array of shape (contexts,); ``differing``: how many contexts
        differ from 0. Tasks may vary differently and have different numbers of contexts: the
        degrees of freedom are those of B. L. Welch, Biometrika 34 (1947)."""
        freedoms, variances, means = [], [], []
        for task in values:
            freedoms.append(len(task) - 1)
            variances.append(task.var(ddof=1) / len(task))
            means.append(task.mean())
        mean = float(np.mean(means))
        total = float(np.sum(variances))
        error = math.sqrt(total) / len(values)
        least = 2.0 ** (1 - differing)
        # Contexts that do not vary leave 0 / 0 for Welch's degrees of freedom.
        if error < FLAT:
            return cls(mean, 0.0, float(min(freedoms)), least)
        freedom = total**2 / float(sum(np.square(variances) / freedoms))
        return cls(mean, error, freedom, least)

    @classmethod
    def from_pairs(cls, first: Sequence[FloatArray], second: Sequence[FloatArray]) -> Self | None:
        """Takes the differences of two policies on the same contexts, an array of shape (contexts,)
        for each task; None where a task has, or the two differ in, too few contexts for any test,
        and where not both have a value of each."""
        if list(map(len, first)) != list(map(len, second)):
            return None
        differences = []
        differing = 0
        for of_first, of_second in zip(first, second, strict=True):
            # The noise of sums would count as a context that differs.
            difference = np.round(of_first - of_second, DIGITS)
            differences.append(difference)
            differing += int(np.count_nonzero(difference))
        fewest = min(map(len, differences))
        if min(differing, fewest) < fewest_clusters():
            return None
        return cls.from_tasks(differences, differing)

    @property
    def p(self) -> float:
        """Returns the two-sided p that the true mean is 0; never 0."""
        if abs(self.mean) < FLAT:
            return 1.0
        tails = 0.0
        if self.error:
            tails = 2 * float(stdtr(self.freedom, -abs(self.mean) / self.error))
        return max(tails, self.least, LEAST_P)

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Returns the interval of ``1 - alpha``: it leaves out 0 exactly where p is below
        ``alpha``."""
        half = float(stdtrit(self.freedom, 1 - alpha / 2)) * self.error
        low = self.mean - half
        high = self.mean + half
        # The chance of ``least`` may hold p up where t alone would tell a difference: then the
        # interval is made to hold 0, or it would contradict p.
        if self.p < alpha:
            return low, high
        return min(low, 0.0), max(high, 0.0)

    def smallest(self, alpha: float = ALPHA, times: int = 1) -> float | None:
        """Returns the smallest true mean that is told from 0 at ``alpha`` four times in five, with
        so many ``times`` the contexts: (t(1 - alpha / 2) + t(0.8)) standard errors [H. S. Bloom,
        Evaluation Review 19 (1995)]. None where contexts do not vary, which says nothing of others,
        and where so few tell nothing at ``alpha``."""
        # That so many times as many contexts all lie on one side has the chance of these to that
        # power.
        if not self.error or 2 * (self.least / 2) ** times >= alpha:
            return None
        freedom = times * self.freedom
        quantiles = stdtrit(freedom, 1 - alpha / 2) + stdtrit(freedom, POWER)
        return float(quantiles) * self.error / math.sqrt(times)


def differ(first: Sequence[FloatArray], second: Sequence[FloatArray]) -> bool:
    """Tells whether the mean over tasks of two policies differs, by Student's t over contexts: the
    test of a comparison, uncorrected. Fewer contexts than can be told from chance tell nothing.
    ``first``, ``second``: an array for each task, of shape (contexts,)."""
    test = StudentTest.from_pairs(first, second)
    return test is not None and test.p < ALPHA


# If the values of clusters are symmetric about their mean, that mean lies between any two
# neighbours of the ordered means of all subsets equally often [J. A. Hartigan, JASA 64 (1969),
# 1303-1317]. The interval between two of them is the sign-flip test turned round: exact for any
# number of clusters, where a percentile bootstrap of a handful is too narrow.


@dataclass(frozen=True)
class SubsetTest:
    """Tests a mean difference by its means in random subsets of contexts. ``means``: shape
    (subsets,)."""

    means: FloatArray

    @classmethod
    def from_sums(cls, sums: ContextSums, seed: int) -> Self:
        """Takes the sums of the differences of each context, shape (contexts,)."""
        members = subsets(sums.contexts, seed)
        means = (members @ sums.sums) / (members @ sums.counts)
        # The noise of sums would put a subset without a difference on one side.
        return cls(np.round(means, DIGITS))

    @property
    def p(self) -> float:
        """Returns the two-sided p that the mean is 0."""
        # A subset whose mean is 0 counts for both sides: ties make p larger and never smaller.
        fewer = min((self.means <= 0).sum(), (self.means >= 0).sum())
        return min(1.0, 2 * float(fewer + 1) / (len(self.means) + 1))

    def interval(self, alpha: float = ALPHA) -> tuple[float, float] | None:
        """Returns the interval of ``1 - alpha``: it leaves out 0 exactly where p is below
        ``alpha``. None where so few contexts have no such interval."""
        place = int(np.ceil(alpha * (len(self.means) + 1) / 2)) - 1  # from either end, from 1 on
        if place < 1:
            return None
        ordered = np.sort(self.means)
        return float(ordered[place - 1]), float(ordered[-place])


@lru_cache(maxsize=64)  # every two policies ask for the same
def subsets(clusters: int, seed: int) -> FloatArray:
    """Returns which clusters each subset holds, as 0 and 1, shape (subsets, clusters); none is
    empty."""
    if clusters <= ALL_UP_TO:
        numbers = np.arange(1, 2**clusters)  # whose binary digits are the clusters of a subset
        drawn = (numbers[:, None] >> np.arange(clusters)) & 1
    else:
        # Twice as many as needed, since empty subsets are thrown away; of eleven clusters that is
        # one in 2,048.
        random = np.random.default_rng(seed).integers(0, 2, (2 * SUBSETS, clusters))
        drawn = random[random.any(axis=1)][:SUBSETS]
    held: FloatArray = drawn.astype(np.float64, order="F")
    held.flags.writeable = False
    return held
