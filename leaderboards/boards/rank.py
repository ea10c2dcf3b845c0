"""The rank of a policy among all methods of a board, with its interval."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from leaderboards.aggregate.arguments import LEAST_SHARE, narrow_windows
from leaderboards.aggregate.duels import MeanDifference
from leaderboards.boards.area import areas
from leaderboards.boards.declaration import BoardProfiles, DerivedMeasure, TableCell
from leaderboards.boards.profiles import Profile
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.bootstrap import DIGITS, LEVEL, Blank, FloatArray
from leaderboards.statistics.significance import fewest_clusters
from policies.declaration.names import CONTROLS

A_CONTROL = "a control has no rank"


@dataclass(frozen=True)
class RankInterval:
    """A rank, of which 1 is best, with its 95 % interval, widened to hold it and the places of the tied."""

    rank: int  # policies of one value share the better rank
    low: int | None  # None from a single context
    high: int | None
    tied: tuple[str, ...]  # the policies whose paired difference from this one may be 0
    among: int  # how many are ranked

    @property
    def alone(self) -> bool:  # nobody else is ranked, so that the rank says nothing
        return self.among == 1


def rank_intervals(ahead: Mapping[str, Mapping[str, FloatArray]]) -> dict[str, RankInterval]:
    """Returns the rank of each policy as measured, and in each of the same resamples: one more than there are policies
    ahead of it. ``ahead``: by how much a policy is ahead of each policy, itself with 0 among them, shape (1 +
    resamples,). [H. Goldstein and D. J. Spiegelhalter, J. R. Statist. Soc. A 159 (1996), section 4]

    The resamples add noise of their own, which draws ranks to the middle: where many policies are about equal, the
    interval of the first says that it may be any of them, and not where in it it is.
    """
    intervals = {}
    for policy, by_other in ahead.items():
        ranks = 1 + (np.stack(list(by_other.values())) < 0).sum(axis=0)
        rank, resampled = int(ranks[0]), ranks[1:]
        tied = tuple(
            other for other, lead in by_other.items() if other != policy and not MeanDifference.of(lead).is_clear
        )
        best = 1 + sum(bool(lead[0] < 0) for other, lead in by_other.items() if other not in tied)
        low = high = None
        if len(resampled):  # both ends are ranks, as there is nothing between two of them
            low = min(int(np.quantile(resampled, (1 - LEVEL) / 2, method="lower")), rank, best)
            high = max(int(np.quantile(resampled, (1 + LEVEL) / 2, method="higher")), rank, best + len(tied))
        intervals[policy] = RankInterval(rank, low, high, tied, len(by_other))
    return intervals


def ranks(board: BoardProfiles) -> dict[str, RankInterval | Blank]:
    """Ranks all policies that are no controls, any two over the realised ratios that both reach: one that removes less
    than it is asked to cuts nobody short, and keeps its rank."""
    intervals: dict[str, RankInterval | Blank] = {}
    known: dict[str, tuple[Profile, FloatArray]] = {}
    for policy, profile in board.profiles.items():
        area, places = areas(profile), profile.places
        narrow = narrow_windows(board.presses.get(policy, ()))
        if policy in CONTROLS:
            intervals[policy] = Blank(A_CONTROL)
        elif isinstance(area, Blank):
            intervals[policy] = area
        elif narrow:
            why = f"{narrow}, which is under {LEAST_SHARE:.0%} of its paper’s window: it is another press"
            intervals[policy] = Blank(why, narrow)
        elif not isinstance(places, Blank):
            known[policy] = profile, places.max(axis=1)
    ahead = {
        one: {other: _ahead(known[one], known[other]) for other in known if known[other][0].axis == known[one][0].axis}
        for one in known
    }
    ranked = rank_intervals(ahead)
    # Contexts so few that chance alone puts them all on one side tell nobody apart.
    if min((profile.contexts for profile, _ in known.values()), default=0) < fewest_clusters():
        ranked = {
            name: replace(one, low=None, high=None, tied=tuple(other for other in ahead[name] if other != name))
            for name, one in ranked.items()
        }
    return intervals | ranked


def _ahead(one: tuple[Profile, FloatArray], other: tuple[Profile, FloatArray]) -> FloatArray:
    """Returns by how many points one area is above another, both to where the shorter curve ends. Noise of sums is
    rounded away, which would else be as clear as any."""
    shared = np.minimum(one[1], other[1])
    first, second = areas(one[0], shared), areas(other[0], shared)
    if isinstance(first, Blank) or isinstance(second, Blank):
        raise TypeError("only what has an area is ranked")
    fewest = min(len(first), len(second))
    differences: FloatArray = np.round(first[:fewest] - second[:fewest], DIGITS)
    return differences


def _cell(rank: RankInterval) -> TableCell:
    if rank.alone:
        return TableCell.blank("only one ranked", "only one ranked")
    interval = "" if rank.low is None else f"{rank.low}–{rank.high} "
    return TableCell(f"{rank.rank}{' ○' if rank.tied else ''}", f"{interval}of {rank.among}", rank.rank)


RANK = DerivedMeasure(
    name="rank",
    better="lower",
    line="the place among the policies by area, 1 is best, with its 95 % interval; a policy that is second in this "
    "mean over tasks may still be unsafe in one task",
    definition=Definition(
        "Rank, and rank interval",
        "One more than there are policies of a larger area; policies of one value share the better rank. Any two are "
        "compared over the realised ratios that both reach, so that one that removes less than it is asked to keeps "
        "its rank and cuts nobody short; policies with levels of different kinds, as faults and evictions, are ranked "
        "each among their own. The interval holds 95 % of the ranks in the same resamples of contexts for "
        "all, widened to hold the rank measured and the places of the tied, whose paired difference may be 0. "
        "Controls have none, nor has a press whose window is under half of its paper’s on one of the tasks (adapted). "
        "Where nobody else has one, there is none: “only one ranked”.",
        source="H. Goldstein and D. J. Spiegelhalter, J. R. Statist. Soc. A 159 (1996), section 4",
        chapter="board",
    ),
    of_board=ranks,
    columns={"rank": "rank", "rank_low": "low", "rank_high": "high", "tied": "tied", "rank_alone": "alone"},
    heading="rank",
    cell=_cell,
)
