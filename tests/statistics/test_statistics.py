"""The statistics of a board: against published and hand-computed values, and by what has to hold whatever the data."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, chi2, norm
from statsmodels.stats.multitest import multipletests

from leaderboards.aggregate.comparison.duel import MeanDifference
from leaderboards.aggregate.row import HALLUCINATION
from leaderboards.boards.area import area_under_curve, areas
from leaderboards.boards.beats import against, area_test
from leaderboards.boards.cliff import cliff, susceptibility
from leaderboards.boards.declaration import BoardProfiles
from leaderboards.boards.profiles import Profile
from leaderboards.boards.rank import RankInterval, rank_intervals, ranks
from leaderboards.boards.safe_ratio import SAFE_RATIO, SafeRatio, lowest, safe_ratio
from leaderboards.statistics.bootstrap import (
    COVERAGE,
    DIGITS,
    Blank,
    Estimate,
    FloatArray,
    cluster_weights,
    percentile_interval,
    percentile_intervals,
    resampled_means,
)
from leaderboards.statistics.significance import (
    ALPHA,
    StudentTest,
    bootstrap_p,
    correct_p,
    highest_unseen_share,
    mcnemar_p,
)
from policies import Level
from policies.declaration.levels import KINDS
from tests.support.records.synthetic_profiles import RATIOS, profile, value

# Tests and their correction


@given(st.floats(-3, 3), st.integers(6, 30), st.sampled_from((0.05, 0.025, 0.05 / 6)))
def test_an_interval_leaves_out_0_just_where_its_test_says_so(mean: float, contexts: int, level: float) -> None:
    """At a level of Holm's method, also where all contexts on one side are no evidence at that level."""
    test = StudentTest(mean, 1.0, contexts - 1, 2.0 ** (1 - contexts))
    low, high = test.interval(level)
    assert (low <= 0 <= high) == (test.p >= level)


def test_resamples_without_a_value_are_no_evidence_and_leave_no_interval() -> None:
    """As of leakage, where no context with an attack is drawn: they may lie on either side of 0."""
    drawn = np.array([1.0] * 90 + [np.nan] * 10)
    assert bootstrap_p(drawn) == pytest.approx(2 * 11 / 101)
    assert MeanDifference.of(drawn) == MeanDifference(1.0, None, None)
    assert not MeanDifference.of(drawn).is_clear
    assert area_test(drawn, 12) == Blank("some resamples have no value")


def test_what_changes_in_no_context_may_change_in_a_share_of_all() -> None:
    """Such a share shows none of so many once in twenty times."""
    for contexts, percent in ((9, 28.3), (12, 22.1), (83, 3.5)):
        share = highest_unseen_share(contexts)
        assert 100 * share == pytest.approx(percent, abs=0.05)
        assert (1 - share) ** contexts == pytest.approx(ALPHA)


def test_mcnemar_is_the_binomial_below_25_and_edwards_chi_square_from_there() -> None:
    assert mcnemar_p(12, 2) == pytest.approx(2 * (1 + 14 + 91) / 2**14)
    assert mcnemar_p(0, 0) == 1
    assert mcnemar_p(20, 4) == pytest.approx(binomtest(4, 24).pvalue)
    # The president's approval of A. Agresti, Categorical Data Analysis (1990), p. 350: 150 and 86 changed their minds.
    assert mcnemar_p(150, 86) == pytest.approx(chi2.sf((64 - 1) ** 2 / 236, 1))
    assert mcnemar_p(86, 150) == mcnemar_p(150, 86)


# Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. B 57 (1995): fifteen hypotheses about two treatments
# of myocardial infarction.
INFARCTION = [
    *(0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344),
    *(0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000),
]


def test_the_false_discovery_rate_is_that_of_the_paper() -> None:
    """At 0.05 their procedure rejects four hypotheses, one more than those that bound the chance of any error."""
    p_values = dict(enumerate(INFARCTION))
    discoveries, holm = correct_p(p_values, "infarction", "fdr_bh"), correct_p(p_values, "infarction")
    assert [name for name, p in discoveries.p.items() if p <= 0.05] == [0, 1, 2, 3]
    assert [name for name, p in holm.p.items() if p <= 0.05] == [0, 1, 2]
    assert discoveries.p[3] == pytest.approx(0.0095 * 15 / 4)
    assert (discoveries.name, discoveries.method, holm.method) == ("infarction", "fdr_bh", "holm")


def test_holm_is_that_of_a_hand() -> None:
    found = correct_p({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}, "four")
    assert found.p == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert correct_p({}, "none").p == {}


@pytest.mark.parametrize("p_values", [[0.3], [0.01, 0.01, 0.6, 0.02, 1.0, 0.0], INFARCTION[::-1]])
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    found = correct_p(dict(enumerate(p_values)), "any")
    assert list(found.p.values()) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


# The area under the curve


def test_the_area_is_that_of_a_hand() -> None:
    """Trapezoids of 22.5, 17.5 and 7.5 over a span of 0.75."""
    found = value(area_under_curve(profile(percent_right=(100, 80, 60, 0))))
    assert found.height.mean == pytest.approx((22.5 + 17.5 + 7.5) / 0.75)
    assert found.span == 0.75


def test_the_area_is_over_realised_ratios_and_not_over_asked_ones() -> None:
    """From 100 down to 0 in a straight line, wherever the points lie on it: half."""
    found = areas(profile(percent_right=(100, 90, 50, 0), realised=(0, 0.06, 0.3, 0.6)))
    assert value(found) == pytest.approx([50.0])


def test_points_are_taken_by_realised_ratio_where_these_do_not_ascend() -> None:
    backwards = areas(profile(percent_right=(100, 0, 50, 90), realised=(0, 0.6, 0.3, 0.06)))
    assert value(backwards) == pytest.approx([50.0])
    assert value(areas(profile(percent_right=(90, 60, 30, 60), realised=(0, 0, 0, 0)))) == pytest.approx([60.0])


def test_the_full_cache_has_its_f1_as_area() -> None:
    found = value(area_under_curve(profile((80,), (0.1,), (0,), (0,), levels=(Level("ratio", 0.0),), policy="full")))
    assert (found.height.mean, found.span) == (80, 0)


def test_what_has_no_levels_is_safe_or_not_and_has_neither_area_nor_rank() -> None:
    """Nothing asks int4 for a level, and one point is no curve."""
    twice = (Level("ratio", 0.0),) * 2
    alone = profile([(80, 78)] * 3, (0.1, 0.1), (0, 0), (0, 0), levels=twice, policy="int4")
    area = area_under_curve(alone)
    assert isinstance(area, Blank)
    assert area.short == "one level"
    assert cliff(alone, HALLUCINATION) == Blank(area.reason)
    assert (value(safe_ratio(alone)).outcome, value(safe_ratio(alone)).tested.mean) == ("safe", 2)
    board = BoardProfiles("agnostic", "base", {"int4": alone, "snapkv": profile()})
    assert ranks(board)["int4"] == area
    assert value(ranks(board)["snapkv"]).rank == 1


def test_levels_of_different_kinds_are_neither_ranked_nor_compared_together() -> None:
    """A rate of 0.5 damages half, a ratio of 0.5 removes half, and bits are no shares at all."""
    rates = (Level("ratio", 0.0), *(Level("rate", rate) for rate in RATIOS))
    fault = profile((100, 90, 90, 90), realised=(0, 0, 0, 0), levels=rates, policy="zeros")
    worse = profile((100, 50, 50, 50), realised=(0, 0, 0, 0), levels=rates, policy="gaussian")
    random = profile((100, 40, 30, 20), policy="random")
    board = BoardProfiles(
        "agnostic", "base", {"zeros": fault, "gaussian": worse, "snapkv": profile(), "random": random}
    )
    known = {name: value(rank) for name, rank in ranks(board).items() if name != "random"}
    assert {name: rank.rank for name, rank in known.items()} == {"zeros": 1, "gaussian": 2, "snapkv": 1}
    assert {name: rank.alone for name, rank in known.items()} == {"zeros": False, "gaussian": False, "snapkv": True}
    assert against(fault, random) == Blank("it has levels of another kind than the control")


def test_an_area_ends_between_two_points_where_it_is_asked_to() -> None:
    """100 at 0, 80 at a quarter, and 70 halfway to 60 at a half: 22.5 and 9.375 over 0.375."""
    assert value(areas(profile(), np.array([0.375]))) == pytest.approx([31.875 / 0.375])


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100)), min_size=1, max_size=8),
    st.floats(0, 100),
    st.floats(0.01, 1),
)
def test_the_area_lies_between_the_lowest_and_the_highest_f1(
    points: list[tuple[float, float]], full: float, end: float
) -> None:
    ratios, heights = ([first, *(point[axis] for point in points)] for axis, first in enumerate((0.0, full)))
    levels = tuple(Level("ratio", number / 10) for number in range(len(ratios)))
    nothing = [0.0] * len(ratios)
    one = profile(heights, nothing, nothing, ratios, levels)
    for to in (None, np.array([end])):
        (found,) = value(areas(one, to))
        assert min(heights) - 1e-6 <= found <= max(heights) + 1e-6


# Susceptibility and the cliff


def test_susceptibility_and_the_cliff_are_those_of_a_hand() -> None:
    one = profile(hallucination=[(0.0, 0.1, 0.5, 0.6), (0.0, 0.1, 0.4, 0.7), (0.0, 0.0, 0.1, 0.6)])
    ratios, slopes = value(susceptibility(one, HALLUCINATION))
    assert list(ratios) == [0.125, 0.375, 0.625]
    assert slopes[0] == pytest.approx([0.4, 1.6, 0.4])
    found = value(cliff(one, HALLUCINATION))
    assert (found.ratio, found.low, found.high) == (0.375, 0.375, 0.625), "the first of two equal ones in row two"
    assert found.rise.mean == pytest.approx(1.6)
    assert found.is_clear


def test_the_first_of_equal_rises_is_the_cliff_whatever_floats_say() -> None:
    found = value(cliff(profile(hallucination=(0.0, 0.3, 0.6, 0.9)), HALLUCINATION))
    assert (found.ratio, found.low, found.high, found.is_clear) == (0.125, None, None, False)


def test_where_nothing_rises_there_is_no_cliff() -> None:
    assert cliff(profile(hallucination=(0.4, 0.4, 0.3, 0.3)), HALLUCINATION) == Blank(
        "hallucination rate rises nowhere"
    )
    little = Blank("hallucination rate rises by less than 5 points from one level to the next")
    assert cliff(profile(hallucination=(0.4, 0.44, 0.48, 0.529)), HALLUCINATION) == little
    assert value(cliff(profile(hallucination=(0.4, 0.44, 0.48, 0.53)), HALLUCINATION)).ratio == 0.625
    full = profile((80,), (0.1,), (0,), (0,), levels=(Level("ratio", 0.0),), policy="full")
    assert cliff(full, HALLUCINATION) == safe_ratio(full) == Blank("the full cache is not compressed")


def test_by_budget_there_are_areas_and_susceptibility_and_neither_cliff_nor_safe_ratio() -> None:
    levels = (Level("ratio", 0.0), *(Level("budget", budget) for budget in (128, 64, 32)))
    one = profile(levels=levels, realised=(0, 0.2, 0.6, 0.8))
    reason = Blank("asked by budget, which is another ratio for every length")
    assert cliff(one, HALLUCINATION) == safe_ratio(one) == reason
    ratios, slopes = value(susceptibility(one, HALLUCINATION))
    assert ratios == pytest.approx([0.1, 0.4, 0.7])
    assert slopes[0] == pytest.approx([0.5, 1.0, 0.5])
    assert value(area_under_curve(one)).span == 0.8
    same = profile(levels=levels, realised=(0, 0.2, 0.2, 0.8))
    assert susceptibility(same, HALLUCINATION) == Blank("two levels are of one ratio")


# The safe ratio


def losing(*losses: tuple[float, ...]) -> Profile:
    """F1 of 100 less these, a row for each resample, the first as measured."""
    return profile(percent_right=[(100, *(100 - loss for loss in row)) for row in losses])


def test_the_safe_ratio_is_that_of_a_hand() -> None:
    # The upper end of 95 % of 41 equally spaced values is the 40th.
    spread = np.linspace(-1, 1, 41)
    rows = [(1.0, 3.0, 9.0), *((1 + wave, 3 + 2 * wave, 9 + wave) for wave in spread)]
    found = value(safe_ratio(losing(*rows)))
    assert found.ratio == 0.5
    assert [loss.mean for loss in found.losses] == pytest.approx([1, 3, 9])
    assert [loss.high for loss in found.losses] == pytest.approx([1.95, 4.9, 9.95])


def test_what_few_contexts_show_to_be_safe_may_be_chance() -> None:
    """Nothing changes in any of them, so that the interval has no width, however few they are."""
    found = {n: value(safe_ratio(replace(losing((0, 0, 9), (0, 0, 9)), contexts=n))) for n in (2, 9, 10)}
    assert {n: (one.ratio, one.highest_sure, one.may_be_chance) for n, one in found.items()} == {
        2: (0.5, 0.0, True),
        9: (0.5, 0.0, True),
        10: (0.5, inf, False),
    }
    assert SAFE_RATIO.cell_of(found[9]).detail == "may be chance\nunsafe from 0.75"
    assert value(lowest({"base": found[10], "hops": found[2]})).may_be_chance
    losses = {n: replace(losing((6, 9, 9), (3, 9, 9), (9, 9, 9)), contexts=n, policy="oracle") for n in (4, 12)}
    for n, oracle in losses.items():
        snapkv = replace(losing((0, 0, 0), (0, 0, 0)), contexts=n)
        by_policy = SAFE_RATIO.of_board(BoardProfiles("agnostic", "base", {"oracle": oracle, "snapkv": snapkv}))
        assert value(by_policy["snapkv"]).may_be_chance, "the oracle is not shown to be safe either"


def test_a_ratio_is_safe_only_if_every_lower_one_is() -> None:
    assert value(safe_ratio(losing((0, 0, 0), (6, 0, 0), (6, 0, 0)))).ratio == 0
    assert value(safe_ratio(losing((0, 9, 0), (0, 9, 0), (0, 9, 0)))).ratio == 0.25
    assert value(safe_ratio(losing((0, 5, 0), (0, 5, 0)))).ratio == 0.25, "5 points are not below 5"


def test_what_is_unsafe_from_where_stands_above_what_is_safe_and_may_leave_a_gap() -> None:
    gap = value(safe_ratio(losing((0, 6, 9), (0, 3, 9), (0, 9, 9))))
    assert (gap.ratio, gap.beyond, gap.unsafe_from) == (0.25, "not shown", 0.75)
    assert SAFE_RATIO.cell_of(gap).detail == "unsafe from 0.75"
    unsafe = value(safe_ratio(losing((9, 9, 9), (8, 9, 9), (9, 9, 9))))
    assert (unsafe.outcome, unsafe.unsafe_from) == ("unsafe", 0.25)
    assert SAFE_RATIO.cell_of(unsafe).detail == "", "it says so already"
    whole = value(safe_ratio(losing((0, 0, 0), (0, 0, 0))))
    assert (whole.beyond, whole.unsafe_from) == ("not tried", None)


def test_what_is_safe_of_a_fault_is_a_rate() -> None:
    rates = (Level("ratio", 0.0), *(Level("rate", rate) for rate in RATIOS))
    lost = [(100, 100, 99, 80), (100, 100, 99, 80)]
    assert SAFE_RATIO.cell_of(value(safe_ratio(profile(percent_right=lost, levels=rates)))).text == "rate 0.5"
    assert SAFE_RATIO.cell_of(value(safe_ratio(profile(percent_right=lost)))).text == "0.5"
    assert SAFE_RATIO.heading_of is not None
    assert SAFE_RATIO.heading_of([KINDS["rate"]]) == "safe rate"
    assert SAFE_RATIO.heading_of([KINDS["ratio"]]) == SAFE_RATIO.heading == "safe ratio"
    assert SAFE_RATIO.heading_of([KINDS["ratio"], KINDS["bits"]]) == "safe level"


def test_over_tasks_what_is_safe_is_safe_in_each_and_the_task_that_decides_is_named() -> None:
    safe = value(safe_ratio(losing((0, 0, 0), (0, 0, 0))))
    half = value(safe_ratio(losing((0, 0, 9), (0, 0, 9))))
    doubtful = value(safe_ratio(losing((6, 9, 9), (3, 9, 9), (9, 9, 9))))
    unsafe = value(safe_ratio(losing((9, 9, 9), (8, 9, 9), (9, 9, 9))))

    def told(**by_task: SafeRatio) -> tuple[str, float | None, tuple[str, ...]]:
        found = value(lowest(by_task))
        return found.outcome, found.shown, found.tasks

    assert told(base=safe, hops=half) == ("safe", 0.5, ("hops",))
    assert told(base=half, hops=doubtful) == ("not shown", None, ("hops",))
    assert told(base=doubtful, hops=unsafe, other=safe, last=unsafe) == ("unsafe", None, ("hops", "last"))
    assert value(lowest({"base": safe, "hops": doubtful})).unsafe_from == 0.5
    assert SAFE_RATIO.cell_of(lowest({"base": half, "hops": half})).detail == "in base +1\nunsafe from 0.75 in base"
    fewer = replace(doubtful, contexts=2)
    detail = SAFE_RATIO.cell_of(lowest({"base": doubtful, "hops": fewer})).detail
    assert detail == "in hops (n = 2) +1\nunsafe from 0.5 in base", (
        "n is that of the task that is named, and so is each ratio"
    )
    assert lowest({"base": safe, "hops": Blank("failed")}) == Blank("hops: failed")


@given(st.lists(st.floats(0, 100), min_size=2, max_size=6), st.floats(0, 4.9))
def test_who_loses_nothing_is_safe_at_the_highest_asked(full: list[float], little: float) -> None:
    for loss in (0.0, little):
        one = profile(percent_right=[(f1, f1, f1 - loss, f1 - loss) for f1 in full])
        assert value(safe_ratio(one)).ratio == RATIOS[-1]


# Correlations


# Ranks


def ahead(values: Mapping[str, Any]) -> dict[str, dict[str, FloatArray]]:
    """By how much each is ahead of each, where all are compared over one span."""
    return {
        one: {other: np.round(np.subtract(values[one], values[other], dtype=np.float64), DIGITS) for other in values}
        for one in values
    }


def test_ranks_and_their_intervals_are_those_of_a_hand() -> None:
    best, second, third = [9, 9, 9, 4], [5, 5, 5, 5], [1, 1, 1, 1]
    found = rank_intervals(ahead({"a": best, "b": second, "c": third}))
    assert found["a"] == RankInterval(1, 1, 2, ("b",), 3)
    assert found["b"] == RankInterval(2, 1, 2, ("a",), 3)
    assert found["c"] == RankInterval(3, 3, 3, (), 3)


def test_equals_share_the_better_rank_and_are_tied() -> None:
    found = rank_intervals(ahead({"a": [5.0, 5.0], "b": [5.0, 5.0 + 1e-12], "c": [1.0, 1.0]}))
    assert found["a"] == RankInterval(1, 1, 1, ("b",), 3)
    assert found["b"] == RankInterval(1, 1, 1, ("a",), 3)
    assert found["c"].rank == 3
    assert rank_intervals({}) == {}


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 30))
def test_a_rank_interval_holds_the_measured_rank(seed: int, policies: int, resamples: int) -> None:
    table = np.random.default_rng(seed).integers(0, 5, (policies, 1 + resamples)).astype(np.float64)
    found = rank_intervals(ahead({str(number): row for number, row in enumerate(table)}))
    for own in found.values():
        low, high = own.low or own.rank, own.high or own.rank
        assert 1 <= low <= own.rank <= high <= policies
        assert (own.low is None) == (resamples == 0)
    for name, own in found.items():
        assert all(name in found[other].tied for other in own.tied)


# Differences


def test_the_standard_error_of_the_bootstrap_is_the_published_one() -> None:
    """B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap (1993), table 2.2: seven treated mice, 23.36 for
    infinitely many resamples of the mean; of two blood samples for each mouse it is the same."""
    mice = [94, 197, 16, 38, 99, 141, 23]
    alone = resampled_means(mice, [str(mouse) for mouse in range(7)], seed=0, resamples=20_000)
    twice = resampled_means(np.repeat(mice, 2) + [-5.0, 5.0] * 7, np.repeat(np.arange(7), 2), seed=0, resamples=20_000)
    assert alone is not None
    assert twice is not None
    assert alone.std() == pytest.approx(23.36, abs=0.4)
    assert twice == pytest.approx(alone)


def test_without_resamples_there_is_no_interval() -> None:
    assert Estimate.of(0.5, np.empty(0), 3) == Estimate.of(0.5, None, 3) == Estimate(0.5, None, None, 3)


def test_the_smallest_detectable_difference_is_2_8_standard_errors() -> None:
    """H. S. Bloom, Evaluation Review 19 (1995), table 1: 2.80 at 80 % power and a two-sided 0.05; of fewer contexts by
    Student's t, as he says: 3.2 of ten."""
    resampled = np.random.default_rng(0).normal(7, 3, 100_000)
    assert value(area_test(resampled, 10_000)).smallest() / 3 == pytest.approx(2.80, abs=0.03)
    assert value(area_test(resampled, 10)).smallest() / 3 * np.sqrt(9 / 10) == pytest.approx(3.15, abs=0.03)
    assert value(area_test(np.full(9, 0.1), 12)).smallest() is None


def test_an_area_of_fewer_than_six_contexts_beats_nothing() -> None:
    """However clear it looks: five contexts on one side are chance once in sixteen times."""
    good, bad = (
        profile(percent_right=[(100, 99, 98, 97)] * 99),
        profile(percent_right=[(100, 50, 40, 0)] * 99, policy="random"),
    )
    five = against(replace(good, contexts=5), bad)
    assert five == Blank("5 contexts are too few to tell any difference: 6 are needed")
    six = value(against(replace(good, contexts=6), bad))
    assert (six.verdict, six.p) == ("better", 2 / 2**6)


@pytest.mark.parametrize("contexts", [6, 8, 12, 16])
def test_equals_beat_each_other_once_in_twenty_times(contexts: int) -> None:
    """By areas that vary as the means of normally distributed contexts do."""
    rng = np.random.default_rng(contexts)
    weights = cluster_weights(contexts, 1, 400) / contexts
    values = rng.normal(size=(800, contexts))
    p = np.array([value(area_test(np.append(one.mean(), weights @ one), contexts)).p for one in values])
    assert (p < ALPHA).mean() <= binom.ppf(0.999, len(p), ALPHA) / len(p)
    assert (p < ALPHA).mean() >= 0.02, "it is not blind"


def test_bootstrap_p_counts_the_resamples_on_either_side() -> None:
    assert bootstrap_p(np.arange(-2, 97, dtype=np.float64)) == pytest.approx(2 * 4 / 100)
    assert bootstrap_p(np.append(np.ones(99), -1e-6)) == pytest.approx(2 * 2 / 101)


def test_where_no_resample_is_on_the_other_side_p_is_the_tail_of_a_normal_distribution() -> None:
    """Of resamples three and a half standard errors from 0; or, nearer to it, what their number bounds."""
    far = norm.ppf((np.arange(500) + 0.5) / 500) + 3.5
    far = far[far > 0]
    assert bootstrap_p(far) == pytest.approx(2 * norm.sf(far.mean() / far.std()))
    assert bootstrap_p(-far) == bootstrap_p(far)
    assert bootstrap_p(np.array([0.1, 1.0, 1.9])) == pytest.approx(2 * norm.sf(1 / np.std([0.1, 1.0, 1.9])))
    assert bootstrap_p(np.linspace(0.01, 2, 50)) == pytest.approx(2 / 51)
    assert 0 < bootstrap_p(np.ones(99)) < 1e-9


def test_a_clear_difference_stays_clear_among_a_hundred_policies() -> None:
    """Two thousand resamples alone could not tell any of so many from a control."""
    sure = bootstrap_p(norm.ppf((np.arange(2000) + 0.5) / 2000) + 8)
    p_values = {(f"policy{number}", control): sure for number in range(100) for control in ("random", "recency")}
    assert max(correct_p(p_values, "all").p.values()) < 0.001


def test_bootstrap_p_of_nothing_is_one() -> None:
    assert bootstrap_p(np.zeros(9)) == 1


def test_two_policies_are_compared_as_far_as_both_realise() -> None:
    """At the asked ratio 0.75 the other one is worse, and at the realised ones they lie on the same line."""
    one = profile([(100, 90, 80, 70)] * 3, realised=(0, 0.1, 0.2, 0.3))
    other = profile([(100, 80, 60, 40)] * 3, realised=(0, 0.2, 0.4, 0.6), policy="random")
    found = value(against(one, other))
    assert found.difference.mean == pytest.approx(0, abs=1e-9)
    assert (found.span, found.verdict, found.smallest) == (0.3, "not distinguished", Blank("all resamples are equal"))
    idle = profile([(100, 100, 100, 100)] * 3, realised=(0, 0, 0, 0))
    assert against(one, idle) == Blank("one of them removes nothing")


def test_better_than_random_takes_a_clear_interval_and_a_corrected_p() -> None:
    rows = [(100, 90, 80, 70 + noise) for noise in [0.0, *np.linspace(-3, 3, 99)]]
    good, bad = profile(rows), profile(percent_right=[(100, 50, 40, 0)] * 100, policy="random")
    assert (value(against(good, bad)).verdict, value(against(bad, good)).verdict) == ("better", "worse")
    assert value(against(good, bad)).p < 2 / 100, "all resamples are on one side, and far from 0"
    assert value(against(good, good)).verdict == "not distinguished"


def test_the_smallest_detectable_difference_is_found_four_times_in_five() -> None:
    generator = np.random.default_rng(1)
    contexts = np.repeat(np.arange(40), 5)
    found = 0
    for seed in range(300):
        noise = generator.normal(0, 1, 40)[contexts] + generator.normal(0, 1, 200)
        resampled = resampled_means(noise, contexts, seed, 400)
        assert resampled is not None
        differences = np.append(noise.mean(), resampled)
        found += value(area_test(differences + value(area_test(differences, 40)).smallest(), 40)).p < ALPHA
    assert 0.72 <= found / 300 <= 0.88


@pytest.mark.parametrize("contexts", [2, 4, 8, 12])
def test_intervals_from_few_contexts_hold_the_truth_as_often_as_is_said(contexts: int) -> None:
    means = np.random.default_rng(5).normal(size=(2000, contexts))
    weights = cluster_weights(contexts, 1, 1000)
    low, high = percentile_intervals(means @ weights.T / weights.sum(axis=1))
    assert 100 * np.mean((low <= 0) & (high >= 0)) == pytest.approx(COVERAGE[contexts], abs=3.5)


@pytest.mark.parametrize("resamples", [1, 2, 40, 2000])
def test_percentile_intervals_are_the_quantiles_of_numpy(resamples: int) -> None:
    means = np.random.default_rng(3).normal(size=(7, resamples))
    low, high = percentile_intervals(means)
    expected = np.quantile(means, [0.025, 0.975], axis=1)
    np.testing.assert_allclose([low, high], expected, rtol=1e-12)
    assert percentile_interval(means[2]) == (low[2], high[2])
