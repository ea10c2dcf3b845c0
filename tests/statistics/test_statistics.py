"""The statistics of a board: against published and hand-computed values, and by what has to hold
whatever the data."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from leaderboards.boards.area_under_curve import area_under_curve, mean_height
from leaderboards.boards.declaration import BoardProfiles
from leaderboards.boards.profiles import Profile
from leaderboards.boards.rank import ranks
from leaderboards.boards.safe_ratio import SAFE_RATIO, safe_ratio
from leaderboards.statistics.bootstrap import (
    COVERAGE,
    Blank,
    Resampler,
    bootstrap_p,
    cluster_weights,
    count_draws,
    percentile_interval,
    percentile_intervals,
    resampled_means,
)
from leaderboards.statistics.corrections import holm
from leaderboards.statistics.paired_difference import StudentTest
from leaderboards.statistics.rank import Ahead, RankInterval, rank_intervals
from leaderboards.statistics.safe_ratio import SafeRatio, lowest
from policies import Level
from tests.support.records.synthetic_profiles import RATIOS, profile, value
from tests.support.wording import assert_says


@given(st.floats(-3, 3), st.integers(6, 30), st.sampled_from((0.05, 0.025, 0.05 / 6)))
def test_an_interval_leaves_out_0_just_where_its_test_says_so(
    mean: float, contexts: int, level: float
) -> None:
    """At a level of Holm's method, also where all contexts on one side are no evidence at that
    level."""
    test = StudentTest(mean, 1.0, contexts - 1, 2.0 ** (1 - contexts))
    low, high = test.interval(level)
    assert (low <= 0 <= high) == (test.p >= level)


def test_holm_is_that_of_a_hand() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert {name: one.p for name, one in found.items()} == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert holm({}) == {}


def test_the_area_is_that_of_a_hand() -> None:
    """Trapezoids of 22.5, 17.5 and 7.5 over a span of 0.75."""
    found = value(area_under_curve(profile(percent_right=(100, 80, 60, 0))))
    assert found.height.mean == pytest.approx((22.5 + 17.5 + 7.5) / 0.75)
    assert found.span == 0.75


def test_what_has_no_levels_is_safe_or_not_and_has_neither_area_nor_rank() -> None:
    """Nothing asks int4 for a level, and one point is no curve."""
    twice = (Level("ratio", 0.0),) * 2
    alone = profile([(80, 78)] * 100, (0, 0), levels=twice, policy="int4")
    area = area_under_curve(alone)
    assert isinstance(area, Blank)
    assert area.short == "one level"
    assert (value(safe_ratio(alone)).outcome, value(safe_ratio(alone)).tested.difference.mean) == (
        "safe",
        -2,
    )
    board = BoardProfiles({"int4": alone, "snapkv": profile()})
    assert ranks(board)["int4"] == area
    assert value(ranks(board)["snapkv"]).rank == 1


def test_levels_of_different_kinds_are_neither_ranked_nor_compared_together() -> None:
    """A rate of 0.5 damages half, a ratio of 0.5 removes half, and bits are no shares at all."""
    rates = (Level("ratio", 0.0), *(Level("rate", rate) for rate in RATIOS))
    fault = profile((100, 90, 90, 90), realised=(0, 0, 0, 0), levels=rates, policy="zeros")
    worse = profile((100, 50, 50, 50), realised=(0, 0, 0, 0), levels=rates, policy="gaussian")
    random = profile((100, 40, 30, 20), policy="random")
    board = BoardProfiles(
        {"zeros": fault, "gaussian": worse, "snapkv": profile(), "random": random}
    )
    known = {name: value(rank) for name, rank in ranks(board).items() if name != "random"}
    assert {name: rank.rank for name, rank in known.items()} == {
        "zeros": 1,
        "gaussian": 2,
        "snapkv": 1,
    }
    assert {name: rank.alone for name, rank in known.items()} == {
        "zeros": False,
        "gaussian": False,
        "snapkv": True,
    }


def test_an_area_ends_between_two_points_where_it_is_asked_to() -> None:
    """100 at 0, 80 at a quarter, and 70 halfway to 60 at a half: 22.5 and 9.375 over 0.375."""
    assert mean_height(profile(), 0.375) == pytest.approx(31.875 / 0.375)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100)), min_size=1, max_size=8),
    st.floats(0, 100),
    st.floats(0.01, 1),
)
def test_the_area_lies_between_the_lowest_and_the_highest_f1(
    points: list[tuple[float, float]], full: float, end: float
) -> None:
    ratios, heights = (
        [first, *(point[axis] for point in points)] for axis, first in enumerate((0.0, full))
    )
    levels = tuple(Level("ratio", number / 10) for number in range(len(ratios)))
    one = profile(heights, ratios, levels)
    for to in (max(ratios), min(end, max(ratios))):
        assert min(heights) - 1e-6 <= mean_height(one, to) <= max(heights) + 1e-6


def losing(*losses: float, contexts: int = 200) -> Profile:
    """Percent right of 100 less these, one for each level, in each of so many contexts."""
    return profile(percent_right=[(100, *(100 - loss for loss in losses))] * contexts)


def test_the_safe_ratio_is_that_of_a_hand() -> None:
    """One question a context: of 200 contexts 1 is lost at 0.25, and 2 at 0.5. Gains are none of
    200. The upper end joins the distance of Clopper and Pearson's 2.75 % of 1, and 3.57 % of 2, and
    of 0 below."""
    rows = [(100, 100 * (place > 0), 100 * (place > 1), 0.0) for place in range(200)]
    found = value(safe_ratio(profile(percent_right=rows)))
    assert (found.ratio, found.beyond, found.unsafe_from) == (0.5, "unsafe", 0.75)
    differences = [loss.difference for loss in found.levels]
    assert [one.mean for one in differences] == pytest.approx([-0.5, -1, -100]), (
        "a loss is negative"
    )
    assert [one.low for one in differences[:2]] == pytest.approx([-2.754, -3.565], abs=0.002)
    assert [loss.verdict for loss in found.levels] == ["safe", "safe", "unsafe"]


def test_what_has_two_measures_is_safe_in_each() -> None:
    whole, leaks = np.full((200, 4), 100.0), np.tile([100.0, 100.0, 80.0, 80.0], (200, 1))
    found = value(safe_ratio(profile(leads=(whole, leaks))))
    assert (found.ratio, found.unsafe_from) == (0.25, 0.5)


def test_contexts_that_agree_say_what_they_exclude_and_how_many_more_are_needed() -> None:
    """Of n contexts that lose nothing the upper end is 1 - 0.025 ** (1 / n): 26.5 points of 12, 5
    of 72."""
    few, almost, enough = (
        value(safe_ratio(losing(0, 0, 0, contexts=count))) for count in (12, 71, 72)
    )
    assert (few.outcome, almost.outcome, enough.outcome) == ("open", "open", "safe")
    assert few.levels[0].difference.low == pytest.approx(-100 * (1 - 0.025 ** (1 / 12)))
    assert (few.needed, few.more, almost.more, enough.needed) == (72, 60, 1, None)
    cell = SAFE_RATIO.board_cell(few)
    assert cell.text == "open at 0.25"
    assert_says(cell.detail, "0 [−26, +26]", "n = 12", "60 more contexts")
    tolerant = value(safe_ratio(losing(0, 0, 0, contexts=40), tolerance=10))
    assert (tolerant.outcome, tolerant.ratio, tolerant.tolerance) == ("safe", 0.75, 10)
    doubtful = value(safe_ratio(losing(5, 5, 5)))
    assert (doubtful.needed, doubtful.more) == (None, None), (
        "what loses 5 points is safe by no number of contexts"
    )


def test_what_is_safe_where_the_oracle_is_not_shown_to_be_may_be_chance() -> None:
    for oracle, may_be_chance in ((losing(5, 9, 9), True), (losing(0, 0, 0), False)):
        board = BoardProfiles(
            {"oracle": replace(oracle, policy="oracle"), "snapkv": losing(0, 0, 9)}
        )
        found = value(SAFE_RATIO.of_board(board)["snapkv"])
        assert (found.ratio, found.may_be_chance) == (0.5, may_be_chance)
    assert found.highest_sure == inf
    assert_says(SAFE_RATIO.board_cell(found).detail, "0 [−2, +2]", "unsafe from 0.75")


def test_a_ratio_is_safe_only_if_every_lower_one_is() -> None:
    assert value(safe_ratio(losing(6, 0, 0))).ratio == 0
    assert value(safe_ratio(losing(0, 9, 0))).ratio == 0.25
    assert value(safe_ratio(losing(0, 5, 0))).ratio == 0.25, "5 points are not below 5"


def test_what_is_unsafe_from_where_stands_above_what_is_safe_and_may_leave_a_gap() -> None:
    gap = value(safe_ratio(losing(0, 5, 9)))
    assert (gap.ratio, gap.beyond, gap.unsafe_from) == (0.25, "open", 0.75)
    cell = SAFE_RATIO.board_cell(gap)
    assert cell.text == "safe to 0.25"
    assert_says(cell.detail, "0 [−2, +2]", "open at 0.5", "unsafe from 0.75")
    unsafe = value(safe_ratio(losing(9, 9, 9)))
    assert (unsafe.outcome, unsafe.unsafe_from) == ("unsafe", 0.25)
    cell = SAFE_RATIO.board_cell(unsafe)
    assert (cell.text, cell.detail) == ("unsafe from 0.25", "−9 [−10, −8]"), (
        "where it is unsafe is said once"
    )
    whole = value(safe_ratio(losing(0, 0, 0)))
    assert (whole.beyond, whole.unsafe_from) == ("not tried", None)


def test_over_tasks_what_is_safe_is_safe_in_each_and_the_task_that_decides_is_named() -> None:
    safe, half = value(safe_ratio(losing(0, 0, 0))), value(safe_ratio(losing(0, 0, 9)))
    doubtful, unsafe = value(safe_ratio(losing(5, 9, 9))), value(safe_ratio(losing(9, 9, 9)))

    def told(**by_task: SafeRatio) -> tuple[str, float | None, tuple[str, ...]]:
        found = value(lowest(by_task))
        return found.outcome, found.shown, found.tasks

    assert told(base=safe, hops=half) == ("safe", 0.5, ("hops",))
    assert told(base=half, hops=doubtful) == ("open", None, ("hops",))
    assert told(base=doubtful, hops=unsafe, other=safe, last=unsafe) == (
        "unsafe",
        None,
        ("hops", "last"),
    )
    assert value(lowest({"base": safe, "hops": doubtful})).unsafe_from == 0.5
    detail = SAFE_RATIO.board_cell(lowest({"base": half, "hops": half})).detail
    assert_says(detail, "0 [−2, +2]", "in base +1", "unsafe from 0.75 in base")
    fewer = value(safe_ratio(losing(5, 9, 9, contexts=100)))
    detail = SAFE_RATIO.board_cell(lowest({"base": doubtful, "hops": fewer})).detail
    # The number of contexts is that of the task that is named, and so is each ratio.
    assert_says(detail, "−5 [−7, −3]", "in hops (n = 100) +1", "unsafe from 0.5 in base")
    assert lowest({"base": safe, "hops": Blank("failed")}) == Blank("hops: failed")


def test_over_tasks_the_loss_at_a_level_is_that_of_the_worst_task() -> None:
    """At 0.5 both are safe, and the one that loses a point may lose more; at 0.75 the other is
    unsafe."""
    slight, steep = value(safe_ratio(losing(0, 1, 1))), value(safe_ratio(losing(0, 0, 9)))
    both = value(lowest({"base": slight, "hops": steep}))
    assert [(one.level, one.verdict, one.task) for one in both.levels] == [
        (0.25, "safe", "base"),
        (0.5, "safe", "base"),
        (0.75, "unsafe", "hops"),
    ]
    assert [one.difference.mean for one in both.levels] == [0, -1, -9]
    assert (both.ratio, both.tested.difference.mean) == (0.5, -1)


def test_a_withheld_verdict_leaves_the_loss_and_the_reason() -> None:
    """Beside a task with a verdict it does not count: what the model cannot do decides nothing."""
    withheld = value(safe_ratio(replace(losing(9, 9, 9), withheld="the model itself has 45 %")))
    cell = SAFE_RATIO.board_cell(withheld)
    assert (cell.text, cell.sort, cell.is_blank) == ("at 0.25", None, False)
    assert cell.detail == "−9 [−10, −8]"
    downloaded = SAFE_RATIO.download(withheld)
    verdicts = ("", "_outcome", "_beyond", "_unsafe_from", "_contexts_needed")
    assert [downloaded[f"safe_ratio{name}"] for name in verdicts] == [None] * len(verdicts)
    assert downloaded["safe_ratio_reason"] == withheld.withheld
    assert downloaded["safe_ratio_difference"] == -9
    safe = value(safe_ratio(losing(0, 0, 0)))
    assert value(lowest({"base": withheld, "hops": safe})).outcome == "safe"
    assert value(lowest({"base": withheld})).withheld == withheld.withheld


def test_ranks_and_their_intervals_are_those_of_a_hand() -> None:
    """The first is told from the third alone, so that the second may be either of the first two."""
    nothing, told, tied = Ahead(0.0, False), Ahead(4.0, True), Ahead(2.0, False)
    found = rank_intervals(
        {
            "a": {"a": nothing, "b": tied, "c": told},
            "b": {"a": Ahead(-2.0, False), "b": nothing, "c": told},
            "c": {"a": Ahead(-4.0, True), "b": Ahead(-4.0, True), "c": nothing},
        }
    )
    assert found["a"] == RankInterval(1, 1, 2, ("b",), 3)
    assert found["b"] == RankInterval(2, 1, 2, ("a",), 3)
    assert found["c"] == RankInterval(3, 3, 3, (), 3)


def test_areas_that_differ_alike_in_enough_contexts_are_told_apart() -> None:
    """By 20 points in each of six contexts, of which five are one fewer than any test takes."""
    for contexts, is_told in ((5, False), (6, True)):
        rows = [(100, 90 + place, 60, 0) for place in range(contexts)]
        better = profile(percent_right=rows)
        worse = profile(
            percent_right=[(full, first - 20, *others) for full, first, *others in rows],
            policy="knorm",
        )
        found = ranks(BoardProfiles({"snapkv": better, "knorm": worse}))
        assert (value(found["snapkv"]).rank, value(found["snapkv"]).tied) == (
            1,
            () if is_told else ("knorm",),
        )
        assert (value(found["knorm"]).low, value(found["knorm"]).high) == (
            (2, 2) if is_told else (None, None)
        )


def test_the_standard_error_of_the_bootstrap_is_the_published_one() -> None:
    """B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap (1993), table 2.2: seven
    treated mice, 23.36 for infinitely many resamples of the mean that draw seven; of two blood
    samples for each mouse it is the same."""
    mice = [94, 197, 16, 38, 99, 141, 23]
    alone = resampled_means(mice, [str(mouse) for mouse in range(7)], seed=0, resamples=20_000)
    twice = resampled_means(
        np.repeat(mice, 2) + [-5.0, 5.0] * 7, np.repeat(np.arange(7), 2), seed=0, resamples=20_000
    )
    assert alone is not None
    assert twice is not None
    assert alone.std() == pytest.approx(23.36 * np.sqrt(7 / count_draws(7)), abs=0.6)
    assert twice == pytest.approx(alone)


def test_where_no_resample_is_on_the_other_side_p_is_the_tail_of_a_normal_distribution() -> None:
    """Of resamples three and a half standard errors from 0; or, nearer to it, what their number
    bounds."""
    far = norm.ppf((np.arange(500) + 0.5) / 500) + 3.5
    far = far[far > 0]
    assert bootstrap_p(far) == pytest.approx(2 * norm.sf(far.mean() / far.std()))
    assert bootstrap_p(-far) == bootstrap_p(far)
    assert bootstrap_p(np.array([0.1, 1.0, 1.9])) == pytest.approx(
        2 * norm.sf(1 / np.std([0.1, 1.0, 1.9]))
    )
    assert bootstrap_p(np.linspace(0.01, 2, 50)) == pytest.approx(2 / 51)
    assert 0 < bootstrap_p(np.ones(99)) < 1e-9


@pytest.mark.parametrize("contexts", [12, 24, 96])
def test_resamples_of_contexts_that_agree_have_the_width_of_as_many_answers(contexts: int) -> None:
    """A share, and the difference of two of them, of which each meets a context more of its own."""
    resampler = Resampler.of(contexts, seed=1)
    whole = np.ones(contexts), np.arange(contexts), (0.0, 1.0)
    one, other = (resampler.means(*whole, name) for name in ("full", "snapkv"))
    assert (one[0], other[0]) == (1, 1)
    low, high = percentile_interval(one[1:])
    assert low == pytest.approx(0.025 ** (1 / contexts), abs=0.3 / contexts)
    assert high == 1
    low, high = percentile_interval((one - other)[1:])
    assert high == pytest.approx(-low, abs=0.6 / contexts)
    assert high > 0.7 * (1 - 0.025 ** (1 / contexts))
    assert np.array_equal(one, resampler.means(*whole, "full")), (
        "the same wherever it is averaged again"
    )
    assert np.ptp(resampler.means(*whole[:2])) == 0, (
        "of what has no bounds nothing is known beyond it"
    )


def coverage(contexts: int, tasks: int = 1) -> float:
    """Percent of 4,000 simulated runs in which the interval of the mean over tasks holds the
    truth."""
    random = np.random.default_rng(5)
    means = np.zeros((4000, 1000))
    for task in range(tasks):
        weights = cluster_weights(contexts, task, 1000)
        means += random.normal(size=(4000, contexts)) @ weights.T / weights.sum(axis=1)
    low, high = percentile_intervals(means)
    return 100 * float(np.mean((low <= 0) & (high >= 0)))


@pytest.mark.parametrize("contexts", [2, 4, 8, 12, 16, 32])
def test_intervals_hold_the_truth_as_often_as_is_said(contexts: int) -> None:
    assert coverage(contexts) == pytest.approx(COVERAGE[contexts], abs=1.5)


@pytest.mark.parametrize("contexts", [8, 16])
def test_intervals_of_a_mean_over_tasks_are_not_too_narrow(contexts: int) -> None:
    assert 94 < coverage(contexts, tasks=5) < 98.5


def test_an_interval_is_as_wide_as_that_of_students_t() -> None:
    values = np.random.default_rng(2).normal(size=40)
    means = resampled_means(values, np.arange(40), seed=0, resamples=20_000)
    assert means is not None
    half = t.ppf(0.975, 39) * values.std(ddof=1) / np.sqrt(40)
    assert percentile_interval(means) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=0.06 * half
    )


@pytest.mark.parametrize("resamples", [1, 2, 40, 2000])
def test_percentile_intervals_are_the_quantiles_of_numpy(resamples: int) -> None:
    means = np.random.default_rng(3).normal(size=(7, resamples))
    low, high = percentile_intervals(means)
    expected = np.quantile(means, [0.025, 0.975], axis=1)
    np.testing.assert_allclose([low, high], expected, rtol=1e-12)
    assert percentile_interval(means[2]) == (low[2], high[2])
