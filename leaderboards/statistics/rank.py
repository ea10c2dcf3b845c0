"""Ranks policies: the place of each with its interval, and the marks of those that are best in a
column. Both rest on the test of :class:`~leaderboards.statistics.paired_difference.StudentTest`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from leaderboards.statistics.context_sums import FloatArray
from leaderboards.statistics.corrections import holm
from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import StudentTest

Mark = Literal["best", "tie"]


@dataclass(frozen=True)
class RankInterval:
    """A rank, of which 1 is best, with its 95 % interval: the places that its ties leave open."""

    rank: int  # policies of one value share the better rank
    low: int | None  # None from too few contexts
    high: int | None
    tied: tuple[str, ...]  # the policies whose paired difference from this one may be 0
    among: int  # how many are ranked

    @property
    def alone(self) -> bool:
        """Tells whether nobody else is ranked, so that the rank says nothing."""
        return self.among == 1


@dataclass(frozen=True)
class Ahead:
    """By how many points the area of one policy is above that of another, and whether that is told
    from 0."""

    points: float
    is_told: bool


def rank_intervals(ahead: Mapping[str, Mapping[str, Ahead]]) -> dict[str, RankInterval]:
    """Returns the rank of each policy: one more than there are policies ahead of it. Its interval
    begins behind those that are told to be ahead and ends before those that are told to be behind.
    ``ahead``: of each policy over each, itself with 0 among them. [H. Goldstein and D. J.
    Spiegelhalter, J. R. Statist. Soc. A 159 (1996), section 4]"""
    intervals = {}
    for policy, by_other in ahead.items():
        rank = best = 1
        tied = []
        for other, lead in by_other.items():
            is_behind = lead.points < 0
            rank += is_behind
            # It stands among the others with 0 points, and is no tie of itself.
            if other != policy and not lead.is_told:
                tied.append(other)
            else:
                best += is_behind
        low, high = min(best, rank), max(best + len(tied), rank)
        intervals[policy] = RankInterval(rank, low, high, tuple(tied), among=len(by_other))
    return intervals


def marks(
    values: Mapping[str, Sequence[FloatArray]], higher_is_better: bool = True
) -> Mapping[str, Mark]:
    """Returns the mark of each policy by its values, for each task an array of shape (contexts,):
    "best" where the paired differences of all others from the best are told from 0; else it and
    those whose are not are a "tie".

    The test is that of the mean of tasks in a comparison, Student's t over contexts, corrected by
    Holm's method over the policies. Fewer contexts than can be told from chance tell nothing."""
    if len(values) < 2:  # nothing was compared
        return {}
    means = {}
    for policy, of_tasks in values.items():
        means[policy] = float(np.mean([task.mean() for task in of_tasks]))
    extreme = max if higher_is_better else min
    best = extreme(means, key=means.__getitem__)
    p_values = {}
    for policy, of_tasks in values.items():
        if policy == best:
            continue
        test = StudentTest.from_pairs(values[best], of_tasks)
        # Who cannot be tested against the best has no p, and so stays level with it.
        if test:
            p_values[policy] = test.p
    level = dict.fromkeys(values)
    for policy, corrected in holm(p_values).items():
        if corrected.p < ALPHA:
            del level[policy]
    if len(level) == 1:
        return dict.fromkeys(level, "best")
    return dict.fromkeys(level, "tie")
