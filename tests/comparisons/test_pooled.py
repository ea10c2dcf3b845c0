"""Two policies over all that both have: areas by hand, and what the one test of a pair says."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from leaderboards.aggregate.pooled import pool
from leaderboards.aggregate.summary import summarise
from leaderboards.boards.area_under_curve import AREA, BEATS
from leaderboards.boards.board import all_standings
from leaderboards.statistics.area import mean_heights
from tests.aggregate.test_duels import CLEAR, CLOSE, at_levels, directed, duel_records
from tests.support.records.synthetic_profiles import value
from tests.support.records.synthetic_records import realistic_records
from tests.support.wording import assert_says


def with_full(frame: pd.DataFrame, right: float = 100.0) -> pd.DataFrame:
    """The same with the full cache on the questions of each task."""
    first = frame[frame["policy"] == "mine"].drop_duplicates(["task", "question_id"])
    full = first.assign(policy="full", ratio=0.0, level=0.0, realised_ratio=0.0, right=right / 100)
    return pd.concat([full, frame], ignore_index=True)


def test_without_the_full_cache_the_area_begins_at_the_lowest_level() -> None:
    """Heights 100, 60 and 60 points of difference at 0.1, 0.5 and 0.9: the area from 0.1 to 0.9 by
    hand is 70."""
    frame = at_levels({0.1: CLEAR, 0.5: CLOSE, 0.9: CLOSE})
    (alone,) = pool(frame, "mine", ["theirs"])
    assert (alone.difference.mean, *alone.sides) == pytest.approx((70, 70, 0))
    assert (alone.tasks, alone.contexts, alone.verdict, alone.span) == (
        ("base",),
        10,
        "better",
        "area up to ratio 0.9",
    )
    (back,) = pool(frame, "theirs", ["mine"])
    assert back.difference.mean == pytest.approx(-70)
    assert back.verdict == "worse"


def test_the_area_begins_at_the_full_cache_where_both_are_the_same() -> None:
    """From 0 at the full cache to 100 at 0.5: 50; and over realised ratios to where the shorter
    curve ends."""
    frame = with_full(at_levels({0.5: CLEAR}))
    (asked,) = pool(frame, "mine", ["theirs"])
    assert (asked.difference.mean, *asked.sides, asked.end) == pytest.approx((50, 100, 50, 0.5))
    realised = frame.assign(
        realised_ratio=frame["ratio"] * np.where(frame["policy"] == "theirs", 1.0, 0.4)
    )
    (short,) = pool(realised, "mine", ["theirs"])
    assert (short.end, *short.sides) == pytest.approx((0.2, 100, 80)), (
        "theirs is at 60 where mine ends, at 0.2"
    )


def test_a_pair_has_one_verdict_on_the_board_and_in_a_comparison() -> None:
    frame = realistic_records(
        ["base", "hops"], ["full", "random", "recency", "snapkv", "knorm"], ratios=[0.3, 0.6, 0.9]
    )
    standings = all_standings(frame, summarise(frame, resamples=50))
    for policy, other in (("snapkv", "knorm"), ("knorm", "snapkv")):
        lines = {line.other: line for line in pool(frame, policy, [other, "random", "recency"])}
        (standing,) = (one for one in standings["agnostic", "all"] if one.policy == policy)
        assert [standing[measure] for measure in BEATS] == [lines["random"], lines["recency"]]
        area = value(standing[AREA]).height.mean
        assert lines["random"].sides[0] == pytest.approx(area, abs=0.5), "as far as both reach"


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ((0.9, 0.1, 0.5), "better"),
        ((0.1, 0.9, 0.5), "worse"),
        ((0.5, 0.5, 0.9), "not distinguished"),
    ],
)
def test_of_directives_obedience_and_leakage_under_a_defence_count_alike(
    given: tuple[float, float, float], verdict: str
) -> None:
    (line,) = pool(directed(*given), "mine", ["theirs"])
    assert (line.title, line.verdict) == ("obeyed, not leaked", verdict)
    assert line.sides == pytest.approx((100 * (given[0] + 1 - given[1]) / 2, 50))


def test_tests_are_corrected_over_the_opponents_and_apart_from_the_controls() -> None:
    rng = np.random.default_rng(1)
    mine = list(100.0 * rng.integers(0, 2, 60))
    others = {
        f"other{number}": list(100.0 * (rng.random(60) < 0.4 - 0.1 * number)) for number in range(4)
    }
    frame = duel_records(mine=mine, random=list(100.0 * rng.integers(0, 2, 60)), **others)
    *together, control = pool(frame, "mine", [*others, "random"])
    alone = [pool(frame, "mine", [other])[0] for other in (*others, "random")]
    assert [one.p for one in together] == pytest.approx(
        multipletests([one.p for one in alone[:-1]], method="holm")[1]
    )
    assert (control, control.family) == (alone[-1], 1)
    for one, single in zip(together, alone, strict=False):
        assert (one.difference.mean, one.family) == (single.difference.mean, 4)
        assert value(one.difference.low) <= value(single.difference.low)
        assert one.difference.is_clear == (value(one.p) < 0.05)
    better, undecided = (
        [one.other for one in together if one.verdict == verdict]
        for verdict in ("better", "not distinguished")
    )
    assert better
    assert undecided


def test_below_six_contexts_of_a_task_there_is_neither_p_nor_interval() -> None:
    """All contexts of all tasks on one side, which chance alone does once in 2^14: still no
    verdict."""
    tasks = [
        duel_records(mine=[100.0] * 10, theirs=[0.0] * 10).assign(task=name)
        for name in ("a", "b", "c")
    ]
    (five,) = pool(pd.concat(tasks, ignore_index=True), "mine", ["theirs"])
    assert (five.verdict, five.p, five.difference.low, five.smallest) == (
        "not distinguished",
        None,
        None,
        None,
    )
    assert_says(five.reason, "n = 15 (3 tasks x 5)", "6 of a task")
    (six,) = pool(
        duel_records(mine=[100.0] * 12, theirs=[0.0] * 10 + [50.0] * 2), "mine", ["theirs"]
    )
    assert six.verdict == "better"
    assert six.p == pytest.approx(2 / 2**6)


def test_tasks_that_are_left_out_are_named_with_the_reason() -> None:
    """One that the model cannot do, and one that a policy failed at."""
    whole = duel_records(mine=CLEAR, theirs=CLOSE)
    failed = whole.assign(
        task="entities", status=np.where(whole["policy"] == "mine", "failed", "ok")
    )
    frame = pd.concat([whole, whole.assign(task="hard"), failed], ignore_index=True)
    (line,) = pool(
        frame, "mine", ["theirs"], {"hard": "the model cannot do this task: percent right 12.0"}
    )
    assert line.tasks == ("base",)
    assert line.left_out == ("hard (percent right 12.0)", "entities (no level of both is complete)")
    assert pool(frame[frame["task"] == "entities"], "mine", ["theirs"]) == []


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9, unique=True))
def test_mean_heights_are_those_of_the_trapezoid_rule_of_numpy(places: list[float]) -> None:
    ordered = np.sort(places)
    heights, span = np.cos(3 * np.array(places)), ordered[-1] - ordered[0]
    (found,) = mean_heights(np.array([places]), heights[None], ordered[-1:])
    expected = np.trapezoid(np.cos(3 * ordered), ordered) / span if span > 1e-6 else heights.mean()
    assert found == pytest.approx(expected, abs=1e-3 if span < 1e-6 else 1e-9)
