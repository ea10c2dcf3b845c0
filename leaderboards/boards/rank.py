"""The rank of a policy among all methods of a board, with its interval."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from leaderboards.aggregate.paired import Difference
from leaderboards.boards.area import areas, last_realised
from leaderboards.boards.cells import Cell
from leaderboards.boards.declaration import BoardProfiles, DerivedMeasure
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.statistics.bootstrap import DIGITS, FloatArray, discrete_interval
from leaderboards.statistics.resampling import Blank
from policies.declaration.names import CONTROLS

SHORT_SPAN = 0.05  # of the context, by which a realised ratio may fall short, as a budget that is kept may
A_CONTROL = "a control has no rank"


@dataclass(frozen=True)
class RankInterval:
    """A rank, of which 1 is best, with its 95 % interval, widened to hold it."""

    rank: int  # policies of one value share the better rank
    low: int | None  # None from a single context
    high: int | None
    tied: tuple[str, ...]  # the policies whose paired difference from this one may be 0


def rank_intervals(values: Mapping[str, FloatArray], higher_is_better: bool = True) -> dict[str, RankInterval]:
    """The rank of each policy as measured, and in each of the same resamples. ``values``: of a measure, shape (1 +
    resamples,), by policy. [H. Goldstein and D. J. Spiegelhalter, J. R. Statist. Soc. A 159 (1996), section 4]

    The resamples add noise of their own, which draws ranks to the middle: where many policies are about equal, the
    interval of the first says that it may be any of them, and not where in it it is.
    """
    if not values:
        return {}
    table = np.round(np.stack(list(values.values()), axis=1), DIGITS)
    ranks = rankdata(-table if higher_is_better else table, method="min", axis=1)
    found = {}
    for place, policy in enumerate(values):
        rank = int(ranks[0, place])
        low, high = discrete_interval(ranks[1:, place], rank)
        others = {other: Difference.between(values[policy], values[other]) for other in values if other != policy}
        tied = tuple(other for other, difference in others.items() if not difference.is_clear)
        found[policy] = RankInterval(rank, None if low is None else int(low), None if high is None else int(high), tied)
    return found


def ranks(board: BoardProfiles) -> dict[str, RankInterval | Blank]:
    """Ranks all policies that are no controls. Over the span that they share, which a policy that removes less than it
    is asked to shall not cut short for all: it has no rank."""
    profiles = board.profiles
    found: dict[str, RankInterval | Blank] = {policy: Blank(A_CONTROL) for policy in profiles if policy in CONTROLS}
    ends: dict[str, FloatArray] = {}
    for policy, profile in profiles.items():
        if policy not in CONTROLS:
            area, end = areas(profile), last_realised(profile)
            if isinstance(area, Blank):
                found[policy] = area
            elif not isinstance(end, Blank):
                ends[policy] = end
    furthest = max((float(end[0]) for end in ends.values()), default=0.0)
    for policy, end in list(ends.items()):
        if end[0] < furthest - SHORT_SPAN:
            found[policy] = Blank(f"removes at most {end[0]:.2f} of the cache, others {furthest:.2f}")
            del ends[policy]
    if ends:
        shared = np.min(list(ends.values()), axis=0)
        values = {policy: areas(profiles[policy], shared) for policy in ends}
        found |= rank_intervals({policy: area for policy, area in values.items() if not isinstance(area, Blank)})
    return found


def _cell(rank: RankInterval) -> Cell:
    interval = "" if rank.low is None else f"{rank.low}–{rank.high}"
    return Cell(f"{rank.rank}{' ○' if rank.tied else ''}", interval, rank.rank)


RANK = DerivedMeasure(
    name="rank",
    unit="rank",
    better="lower",
    bounds=(1, float("inf")),
    line="by the area under F1, with its 95 % interval",
    definition=Definition(
        "Rank, and rank interval",
        "By the area under F1; policies of one value share the better rank. The interval holds 95 % of the ranks "
        "in the same resamples of contexts for all, widened to hold the rank measured. Tied are those whose paired "
        "difference may be 0. Controls have no rank, nor has a policy that removes at most "
        f"{SHORT_SPAN:g} of the cache less than others.",
        source="H. Goldstein and D. J. Spiegelhalter, J. R. Statist. Soc. A 159 (1996), section 4",
        chapter="board",
    ),
    of_board=ranks,
    columns={"rank": "rank", "rank_low": "low", "rank_high": "high", "tied": "tied"},
    heading="rank",
    cell=_cell,
)
