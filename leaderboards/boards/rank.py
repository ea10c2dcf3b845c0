"""The rank of a policy among all methods of a board, with its interval."""

from dataclasses import replace

from leaderboards.aggregate.arguments import LEAST_SHARE, narrow_windows
from leaderboards.boards.area_under_curve import curve_end, heights_by_context, mean_height
from leaderboards.boards.declaration import BoardProfiles, DerivedMeasure, TableCell
from leaderboards.boards.profiles import Profile
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.bootstrap import DIGITS, Blank
from leaderboards.statistics.paired_difference import differ, fewest_clusters
from leaderboards.statistics.rank import Ahead, RankInterval, rank_intervals
from policies.declaration.names import CONTROLS

A_CONTROL = "a control has no rank"

Curve = tuple[Profile, float]  # and the place at which it ends


def ranks(board: BoardProfiles) -> dict[str, RankInterval | Blank]:
    """Ranks all policies that are no controls, any two over the realised ratios that both reach:
    one that removes less than it is asked to cuts nobody short, and keeps its rank."""
    intervals: dict[str, RankInterval | Blank] = {}
    curves: dict[str, Curve] = {}
    for policy, profile in board.profiles.items():
        end = curve_end(profile)
        # Before the curve: a control, or a press that is another than its paper's, has no rank
        # however good its curve is.
        reason = _why_unranked(policy, profile, board)
        if reason is not None:
            intervals[policy] = reason
        elif isinstance(end, Blank):
            intervals[policy] = end
        else:
            curves[policy] = profile, end
    ahead: dict[str, dict[str, Ahead]] = {}
    for policy, curve in curves.items():
        ahead[policy] = {}
        for other, other_curve in curves.items():
            # Faults and evictions are ranked each among their own.
            if other_curve[0].axis == curve[0].axis:
                ahead[policy][other] = _ahead(curve, other_curve)
    ranked = rank_intervals(ahead)
    # Contexts so few that chance alone puts them all on one side tell nobody apart.
    contexts = min((profile.contexts for profile, _ in curves.values()), default=0)
    if contexts < fewest_clusters():
        for policy, interval in ranked.items():
            others = tuple(other for other in ahead[policy] if other != policy)
            ranked[policy] = replace(interval, low=None, high=None, tied=others)
    return intervals | ranked


def _why_unranked(policy: str, profile: Profile, board: BoardProfiles) -> Blank | None:
    """Says why a policy has no rank, whatever its curve is."""
    if policy in CONTROLS:
        return Blank(A_CONTROL)
    if profile.withheld:
        return Blank(profile.withheld)
    narrow = narrow_windows(board.presses.get(policy, ()))
    if narrow and not isinstance(curve_end(profile), Blank):
        share = f"{LEAST_SHARE:.0%} of its paper’s window"
        return Blank(f"{narrow}, which is under {share}: it is another press", narrow)
    return None


def _ahead(curve: Curve, other: Curve) -> Ahead:
    """Compares two areas, both to where the shorter curve ends. Noise of sums is rounded away,
    which would else be as clear as any."""
    profile, end = curve
    other_profile, other_end = other
    shared = min(end, other_end)
    # The mean of all questions orders the two; contexts tell whether that is more than chance.
    points = mean_height(profile, shared) - mean_height(other_profile, shared)
    by_context = heights_by_context(profile, shared)
    by_context_of_other = heights_by_context(other_profile, shared)
    return Ahead(round(points, DIGITS), differ(by_context, by_context_of_other))


def _cell(rank: RankInterval) -> TableCell:
    if rank.alone:
        return TableCell.blank("only one ranked", "only one ranked")
    text, detail = f"{rank.rank}", f"of {rank.among}"
    if rank.tied:
        text += " ○"
    if rank.low is not None:
        detail = f"{rank.low}–{rank.high} {detail}"
    return TableCell(text, detail, rank.rank)


RANK = DerivedMeasure(
    name="rank",
    better="lower",
    line="the place among the policies by area, 1 is best, with its 95 % interval; a policy that "
    "is second in this mean over tasks may still be unsafe in one task",
    definition=Definition(
        "Rank, and rank interval",
        "One more than there are policies of a larger area; policies of one value share the "
        "better rank. Any two are compared over the realised ratios that both reach, so that one "
        "that removes less than it is asked to keeps its rank and cuts nobody short. Policies "
        "with levels of different kinds, as faults and evictions, are ranked each among their "
        "own. Two are tied where Student’s t over the contexts does not tell the paired "
        "difference of their areas from 0, as in a comparison but uncorrected. The interval goes "
        "from one place behind those that are told to be ahead to the last that the tied leave "
        "open. Controls have none, nor has a press whose window is under half of its paper’s on "
        "one of the tasks (adapted). Where nobody else has one, there is none: “only one ranked”.",
        source="H. Goldstein and D. J. Spiegelhalter, J. R. Statist. Soc. A 159 (1996), section 4",
        chapter="board",
    ),
    of_board=ranks,
    columns={
        "rank": "rank",
        "rank_low": "low",
        "rank_high": "high",
        "tied": "tied",
        "rank_alone": "alone",
    },
    heading="rank",
    cell=_cell,
)
