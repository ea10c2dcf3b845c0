"""The policies of one board against one another: ranks with intervals, and what beats a control at the same budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pandas import DataFrame
from scipy.stats import norm, rankdata

from leaderboards.aggregate.paired import Difference, Verdict
from leaderboards.aggregate.profiles import Profile, Profiles
from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.safety import (
    Area,
    Cliff,
    Correlation,
    SafeRatio,
    area_under_curve,
    areas,
    cliff,
    ger_against_hallucination,
    last_realised,
    safe_ratio,
)
from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.statistics.bootstrap import DIGITS, FloatArray, discrete_interval
from leaderboards.statistics.resampling import Blank
from leaderboards.statistics.significance import ALPHA, Method, corrected
from policies.declaration.names import CONTROLS

POWER = 0.8
TO_BEAT = ("random", "recency")
SHORT_SPAN = 0.05  # of the context, by which a realised ratio may fall short, as a budget that is kept may

A_CONTROL = "a control has no rank"
NO_SPREAD = "all resamples are equal"
NOTHING_REMOVED = "one of them removes nothing"


@dataclass(frozen=True)
class RankInterval:
    """1 is best; policies of one value share the better rank. ``low`` to ``high``: the 95 % interval, widened to hold
    ``rank``; None from a single context. ``tied``: those whose paired difference from this one may be 0."""

    rank: int
    low: int | None
    high: int | None
    tied: tuple[str, ...]


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
        others = {other: difference_of(values[policy], values[other]) for other in values if other != policy}
        tied = tuple(other for other, difference in others.items() if not difference.is_clear)
        found[policy] = RankInterval(rank, None if low is None else int(low), None if high is None else int(high), tied)
    return found


def difference_of(one: FloatArray, other: FloatArray) -> Difference:
    """Subtracts two measures of the same resamples, each of shape (1 + resamples,)."""
    return Difference.of(_differences(one, other))


def _differences(one: FloatArray, other: FloatArray) -> FloatArray:
    """0 where two are equal but for noise, which would else be as clear as any."""
    return np.round(one - other, DIGITS)


def smallest_detectable_difference(resampled: FloatArray) -> float | Blank:
    """The smallest true difference that samples like this one tell from 0, at two-sided 0.05, four times in five:
    (1.96 + 0.84) standard errors. [H. S. Bloom, Evaluation Review 19 (1995)]

    ``resampled``: a paired difference in each resample, shape (resamples,), whose standard deviation is the standard
    error; the result is in its unit. With a handful of contexts it is too small.
    """
    if not len(resampled):
        return Blank(ONE_CONTEXT)
    error = float(np.std(resampled, ddof=1))
    if error < 10.0**-DIGITS:
        return Blank(NO_SPREAD)
    return float(norm.ppf(1 - ALPHA / 2) + norm.ppf(POWER)) * error


def bootstrap_p(resampled: FloatArray) -> float:
    """Two-sided p that a difference is 0, from the resamples on either side of it, shape (resamples,): below 0.05 about
    where the 95 % interval leaves out 0, and never 0. [A. C. Davison and D. V. Hinkley (1997), section 4.2]

    Where all are on one side, their number alone would bound it, and corrected over many policies nothing could be
    told from anything: p is then the tail of a normal distribution of their mean and spread, if that is smaller.
    """
    fewer = min(np.sum(resampled <= 0), np.sum(resampled >= 0))
    counted = min(1.0, 2 * float(fewer + 1) / (len(resampled) + 1))
    if fewer:
        return counted
    spread = max(float(np.std(resampled)), 10.0**-DIGITS)
    return min(counted, max(2 * float(norm.sf(abs(float(np.mean(resampled))) / spread)), LEAST_P))


LEAST_P = 1e-12  # what a tail of a normal distribution can say at all


@dataclass(frozen=True)
class Against:
    """A policy against another at the same realised budget.

    ``difference``: of the areas under the curves of F1 in points, this one minus the other, both over the realised
    ratios from 0 to ``span``, as far as both go. ``smallest``: the smallest detectable difference, in points. ``p``:
    corrected over the family of the board.
    """

    policy: str
    other: str
    difference: Difference
    span: float
    smallest: float | Blank
    p: float

    @property
    def verdict(self) -> Verdict:
        if self.p >= ALPHA or not self.difference.is_clear:
            return "tied"
        return "better" if self.difference.mean > 0 else "worse"


def against(one: Profile, other: Profile) -> Against | Blank:
    """``p`` is not corrected yet. Blank from a single context, which has no interval."""
    end, other_end = last_realised(one), last_realised(other)
    if isinstance(end, Blank):
        return end
    if isinstance(other_end, Blank):
        return other_end
    shared = np.minimum(end, other_end)
    first, second = areas(one, shared), areas(other, shared)
    if isinstance(first, Blank):
        return first
    if isinstance(second, Blank):
        return second
    if shared[0] <= 0:
        return Blank(NOTHING_REMOVED)
    differences = _differences(first, second)
    if len(differences) < 2:
        return Blank(ONE_CONTEXT)
    return Against(
        one.policy,
        other.policy,
        Difference.of(differences),
        float(shared[0]),
        smallest_detectable_difference(differences[1:]),
        bootstrap_p(differences[1:]),
    )


@dataclass(frozen=True)
class Standing:
    """Holds what one policy comes to, in one mode, at one task or over ``all``. Blanks enter no rank.

    ``rank``: by the area under the curve up to where the shortest of the ranked curves ends. ``against``: by control.
    """

    mode: str
    task: str
    policy: str
    area: Area | Blank
    rank: RankInterval | Blank
    safe_ratio: SafeRatio | Blank
    cliff: Cliff | Blank
    ger_against_hallucination: Correlation | Blank
    against: Mapping[str, Against | Blank]


def standings(profiles: Profiles, mode: str, task: str, method: Method = "holm") -> list[Standing]:
    """Every policy of a board, in the order of its rows. What beats a control is corrected over the policies and
    controls of this board."""
    own = {policy: profiles.profile(mode, task, policy) for policy in profiles.policies(mode, task)}
    ranks = _ranks(own)
    duels = {
        (policy, control): against(profile, own[control])
        for policy, profile in own.items()
        for control in TO_BEAT
        if control in own and policy not in CONTROLS
    }
    family = corrected_duels(duels, f"better than {' or '.join(TO_BEAT)}: {task}, {mode}", method)
    return [
        Standing(
            mode,
            task,
            policy,
            area_under_curve(profile),
            ranks[policy],
            safe_ratio(profile),
            cliff(profile),
            ger_against_hallucination(profile),
            {control: family[policy, control] for control in TO_BEAT if (policy, control) in family},
        )
        for policy, profile in own.items()
    ]


Found = Mapping[tuple[str, str], Sequence[Standing]]


def all_standings(records: DataFrame, rows: Sequence[SummaryRow], seed: int = 0) -> Found:
    """Computes the standings of every board, by mode and task, ``all`` among them. ``rows`` are those that the records
    add up to."""
    profiles = Profiles.of(records, rows, seed)
    return {(mode, task): standings(profiles, mode, task) for mode, task in profiles.boards}


def corrected_duels(
    duels: Mapping[tuple[str, str], Against | Blank], family: str, method: Method = "holm"
) -> dict[tuple[str, str], Against | Blank]:
    """The same with p corrected over those that are not blank."""
    p_values = {names: duel.p for names, duel in duels.items() if isinstance(duel, Against)}
    found = corrected(p_values, family, method)
    return {
        names: replace(duel, p=found.p[names]) if isinstance(duel, Against) else duel for names, duel in duels.items()
    }


def _ranks(profiles: Mapping[str, Profile]) -> dict[str, RankInterval | Blank]:
    """Ranks all policies that are no controls. Over the span that they share, which a policy that removes less than it
    is asked to shall not cut short for all: it has no rank."""
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
