"""Tests one difference, also over few clusters, and corrects p-values where many are tested."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self, TypeVar

import numpy as np
from scipy.special import ndtr, stdtr, stdtrit

from leaderboards.statistics.bootstrap import DIGITS, FLAT, RESAMPLES, FloatArray

ALPHA = 0.05
LEAST_P = 1e-12  # what a tail of a normal distribution can say at all
POWER = 0.8  # with which the smallest detectable difference is told from 0

ALL_UP_TO = 10  # clusters, of which all subsets are taken
SUBSETS = RESAMPLES - 1  # of more clusters: so many at random
# Points of percent: the standard deviation of a context's difference between two policies, times
# the root of its questions. Of nine tasks with 1 to 16 questions, on SmolLM2 and reference, the
# medians are 46 to 67, of six 50 to 52.
QUESTION_SPREAD = 51.0

Name = TypeVar("Name")


@dataclass(frozen=True)
class Corrected:
    """A p-value of a family, corrected for how many there are. ``alpha``: the level at which it is
    tested; an interval of this level leaves out 0 exactly where ``p`` is below 0.05."""

    p: float
    alpha: float


def holm(p_values: Mapping[Name, float]) -> dict[Name, Corrected]:
    """Corrects the p-values of a family, which bounds the chance of any false claim [S. Holm,
    Scandinavian Journal of Statistics 6 (1979)]: the levels are 0.05 over the number of those not
    yet rejected, and from the first that is not, the level of that one."""
    # By hand, as statsmodels' multipletests collects garbage at each call: half a second where
    # torch is loaded, and a comparison has hundreds of families.
    family = np.array(list(p_values.values()))
    order = np.argsort(family, kind="stable")
    ordered = family[order]
    remaining = np.arange(len(family), 0, -1)  # tests not yet rejected
    levels = ALPHA / remaining
    kept = np.flatnonzero(ordered >= levels)
    if len(kept):
        levels[kept[0] :] = levels[kept[0]]
    adjusted = np.empty(len(family))
    adjusted[order] = np.minimum(np.maximum.accumulate(ordered * remaining), 1)
    alphas = np.empty(len(family))
    alphas[order] = levels
    corrected = {}
    for name, p, alpha in zip(p_values, adjusted.tolist(), alphas.tolist(), strict=True):
        corrected[name] = Corrected(p, alpha)
    return corrected


def bootstrap_p(resampled: FloatArray) -> float:
    """Returns the two-sided p that a difference is 0, from the resamples on either side of it,
    shape (resamples,): below 0.05 about where the 95 % interval leaves out 0, and never 0. [A. C.
    Davison and D. V. Hinkley (1997), section 4.2]

    Where all are on one side, their number alone would bound it, and corrected over many policies
    nothing could be told from anything: p is then the tail of a normal distribution of their mean
    and spread, if that is smaller. Resamples without a value (NaN) count for either side."""
    fewer = min(np.sum(~(resampled > 0)), np.sum(~(resampled < 0)))
    counted = min(1.0, 2 * float(fewer + 1) / (len(resampled) + 1))
    if fewer:
        return counted
    spread = max(float(np.std(resampled)), FLAT)
    distance = abs(float(np.mean(resampled))) / spread
    tails = 2 * float(ndtr(-distance))
    return min(counted, max(tails, LEAST_P))


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
        ``values``: one for each context, an array for each task; ``differing``: how many contexts
        differ from 0. Tasks may vary differently and have different numbers of contexts: the
        degrees of freedom are those of B. L. Welch, Biometrika 34 (1947)."""
        counts = [len(task) for task in values]
        freedoms = [count - 1 for count in counts]
        variances = np.array([task.var(ddof=1) / len(task) for task in values])
        mean = float(np.mean([task.mean() for task in values]))
        total = float(variances.sum())
        error = math.sqrt(total) / len(values)
        least = 2.0 ** (1 - differing)
        if error < FLAT:
            return cls(mean, 0.0, float(min(freedoms)), least)
        freedom = total**2 / float(sum(variances**2 / freedoms))
        return cls(mean, error, freedom, least)

    @classmethod
    def from_pairs(cls, first: Sequence[FloatArray], second: Sequence[FloatArray]) -> Self | None:
        """Takes the differences of two policies on the same contexts, an array of shape (contexts,)
        for each task; None where a task has, or the two differ in, too few contexts for any test,
        and where not both have a value of each."""
        if [len(task) for task in first] != [len(task) for task in second]:
            return None
        differences = []
        differing = 0
        for of_first, of_second in zip(first, second, strict=True):
            difference = np.round(of_first - of_second, DIGITS)
            differences.append(difference)
            differing += int(np.count_nonzero(difference))
        fewest = min(len(difference) for difference in differences)
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
        if self.p < alpha:
            return low, high
        return min(low, 0.0), max(high, 0.0)

    def smallest(self, alpha: float = ALPHA, times: int = 1) -> float | None:
        """Returns the smallest true mean that is told from 0 at ``alpha`` four times in five, with
        so many ``times`` the contexts: (t(1 - alpha / 2) + t(0.8)) standard errors [H. S. Bloom,
        Evaluation Review 19 (1995)]. None where contexts do not vary, which says nothing of others,
        and where so few tell nothing at ``alpha``."""
        if not self.error or 2 * (self.least / 2) ** times >= alpha:
            return None
        freedom = times * self.freedom
        quantiles = stdtrit(freedom, 1 - alpha / 2) + stdtrit(freedom, POWER)
        return float(quantiles) * self.error / math.sqrt(times)


# The means of random subsets: if the clusters' values are symmetric about their mean, that mean
# lies between any two neighbours of the ordered means of all subsets equally often [J. A. Hartigan,
# JASA 64 (1969), 1303-1317]. The interval between two of them is the sign-flip test turned round:
# exact for any number of clusters, where a percentile bootstrap of a handful is too narrow.


@lru_cache(maxsize=64)  # every two policies ask for the same
def subsets(clusters: int, seed: int) -> FloatArray:
    """Returns which clusters each subset holds, as 0 and 1, shape (subsets, clusters); none is
    empty."""
    if clusters <= ALL_UP_TO:
        numbers = np.arange(1, 2**clusters)  # whose binary digits are the clusters of a subset
        drawn = (numbers[:, None] >> np.arange(clusters)) & 1
    else:
        random = np.random.default_rng(seed).integers(0, 2, (2 * SUBSETS, clusters))
        drawn = random[random.any(axis=1)][:SUBSETS]
    held: FloatArray = drawn.astype(np.float64, order="F")
    held.flags.writeable = False
    return held


def two_sided_p(means: FloatArray) -> float:
    """Returns the two-sided p that the mean is 0, from the means of all subsets, shape
    (subsets,)."""
    fewer = min((means <= 0).sum(), (means >= 0).sum())
    return min(1.0, 2 * float(fewer + 1) / (len(means) + 1))


def subset_interval(means: FloatArray, alpha: float = ALPHA) -> tuple[float, float] | None:
    """Returns the interval of ``1 - alpha`` from the means of all subsets: it leaves out 0 exactly
    where :func:`two_sided_p` is below ``alpha``. None where so few clusters have no such
    interval."""
    place = int(np.ceil(alpha * (len(means) + 1) / 2)) - 1  # from either end, counted from 1
    if place < 1:
        return None
    ordered = np.sort(means)
    return float(ordered[place - 1]), float(ordered[-place])


def fewest_clusters(alpha: float = ALPHA) -> int:
    """Returns the fewest clusters that can be told from chance at ``alpha``: 6 at 0.05."""
    return int(np.floor(np.log2(2 / alpha))) + 1


def smallest_detectable(spread: float, clusters: int, alpha: float = ALPHA) -> float | None:
    """Returns :meth:`StudentTest.smallest` of so many clusters, whose differences have the standard
    deviation ``spread``."""
    error = spread / math.sqrt(clusters)
    test = StudentTest(0.0, error, freedom=clusters - 1, least=2.0 ** (1 - clusters))
    return test.smallest(alpha)


def usual_spread(questions: float) -> float:
    """Returns the usual standard deviation of the difference of a context with so many questions,
    in points."""
    return QUESTION_SPREAD / math.sqrt(questions)


def clusters_to_detect(difference: float, spread: float) -> int:
    """Returns the fewest clusters by which :func:`smallest_detectable` sees a difference."""
    count = fewest_clusters()
    while True:
        smallest = smallest_detectable(spread, count)
        if smallest and smallest <= difference:
            return count
        count += 1
