"""Paired comparisons, by hand and against what they have to do."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from leaderboards.aggregate.paired import Duel, duels, every_duel
from leaderboards.errors import LeaderboardError
from tests.support.synthetic_records import realistic_records


def records(**policies: list[float]) -> pd.DataFrame:
    """F1 of each policy on the questions in turn, two for each context, at ratio 0.5 of ``base``."""
    rows = [
        {
            "task": "base",
            "mode": "agnostic",
            "ratio": 0.5,
            "level_kind": "ratio",
            "level": 0.5,
            "repeat": 0,
            "policy": policy,
            "example_id": f"base/{number // 2}",
            "draw_id": f"base/{number // 2}",
            "question_id": f"base/{number // 2}/{number % 2}",
            "status": "ok",
            "f1": score,
            "right": score >= 50,
            "hallucinated": score < 50,
        }
        for policy, scores in policies.items()
        for number, score in enumerate(scores)
    ]
    return pd.DataFrame(rows)


def test_the_difference_the_counts_and_the_test_are_those_of_a_hand() -> None:
    one, other = [100.0] * 16 + [0.0] * 4, [0.0] * 12 + [100.0] * 4 + [0.0] * 2 + [100.0] * 2
    (duel,) = duels(records(mine=one, theirs=other), "mine", ["theirs"])
    assert (duel.questions, duel.contexts) == (20, 10)
    assert duel.f1.mean == pytest.approx(50.0)
    assert duel.hallucination.mean == pytest.approx(-0.5)
    assert (duel.only_one, duel.only_other) == (12, 2)
    assert duel.p == pytest.approx(binomtest(2, 14).pvalue)
    assert duel.f1.low is not None
    assert duel.f1.low > 0
    assert duel.verdict == "better"
    (back,) = duels(records(mine=one, theirs=other), "theirs", ["mine"])
    assert back.f1.mean == pytest.approx(-50.0)
    assert back.verdict == "worse"


def test_equal_outputs_are_tied() -> None:
    (duel,) = duels(records(mine=[100.0, 0.0] * 5, theirs=[100.0, 0.0] * 5), "mine", ["theirs"])
    assert (duel.f1.mean, duel.f1.low, duel.f1.high, duel.p, duel.verdict) == (0.0, 0.0, 0.0, 1.0, "tied")


def test_p_is_corrected_over_the_family() -> None:
    one, other = [100.0] * 16 + [0.0] * 4, [0.0] * 6 + [100.0] * 10 + [0.0] * 4
    alone = duels(records(mine=one, a=other), "mine", ["a"])
    family = duels(records(mine=one, a=other, b=other, c=other), "mine", ["a", "b", "c"])
    assert alone[0].verdict == "better"
    assert alone[0].p == pytest.approx(binomtest(0, 6).pvalue)
    assert [duel.p for duel in family] == pytest.approx([3 * alone[0].p] * 3)
    assert {duel.verdict for duel in family} == {"tied"}


def test_noise_is_tied_nineteen_times_in_twenty_or_more() -> None:
    rng = np.random.default_rng(0)
    better = 0
    for _ in range(60):
        one, other = (list(100.0 * rng.integers(0, 2, 40)) for _ in range(2))
        better += duels(records(mine=one, theirs=other), "mine", ["theirs"])[0].verdict != "tied"
    assert better <= 5


def test_what_has_no_hallucination_is_left_out_and_a_failed_cell_is_none() -> None:
    frame = records(mine=[100.0, 0.0, 100.0, 0.0], theirs=[0.0, 0.0, 0.0, 0.0])
    frame["hallucinated"] = frame["hallucinated"].astype(object)
    frame.loc[frame.question_id == "base/0/0", "hallucinated"] = None
    (duel,) = duels(frame, "mine", ["theirs"])
    assert duel.hallucination.mean == pytest.approx(-1 / 3)
    frame.loc[0, "status"] = "failed"
    with pytest.raises(LeaderboardError, match="no cell in common that is complete"):
        duels(frame, "mine", ["theirs"])


def test_two_measures_that_disagree_are_no_verdict() -> None:
    """Ten questions just wrong against just right, and ten in which it is right by far: F1 and right disagree."""
    one, other = [49.0] * 10 + [90.0] * 10, [50.0] * 20
    (duel,) = duels(records(mine=one, theirs=other), "mine", ["theirs"])
    assert duel.f1.is_clear
    assert duel.f1.mean > 0
    assert (duel.only_one, duel.only_other) == (0, 10)
    assert duel.p < 0.05
    assert duel.verdict == "tied"


def test_a_verdict_on_hallucinations_needs_more_than_its_interval() -> None:
    """Four contexts in which just this one hallucinates: the interval leaves out 0, an exact test of 4 against 0 (p =
    1/8) does not; six against 0 do (p = 1/32), but not when twice as many cells are compared."""

    def met(hallucinated: int, others: int = 1) -> list[Duel]:
        frame = records(mine=[0.0] * 2 * 8, **{f"other{number}": [0.0] * 2 * 8 for number in range(others)})
        frame["right"] = False
        place = frame.question_id.str.extract(r"base/(\d+)/(\d)").astype(int)
        frame["hallucinated"] = (frame.policy == "mine") & (place[0] < hallucinated) & (place[1] == 0)
        return duels(frame, "mine", [f"other{number}" for number in range(others)])

    (four,), (six,), twice = met(4), met(6), met(6, others=2)
    assert four.hallucination.is_clear
    assert four.hallucination_verdict == "tied"
    assert (six.only_one_hallucinates, six.only_other_hallucinates) == (6, 0)
    assert six.hallucination_p == pytest.approx(2 / 2**6)
    assert six.hallucination_verdict == "worse"
    assert [duel.hallucination_p for duel in twice] == pytest.approx([4 / 2**6] * 2)
    assert {duel.hallucination_verdict for duel in twice} == {"tied"}


def test_every_two_policies_are_as_their_own_comparison_has_them() -> None:
    """Over tasks, levels, attacks without a value, a failed cell and questions that one of them lacks."""

    def spoil(one: dict[str, object]) -> dict[str, object]:
        if (one["policy"], one["task"], one["ratio"]) == ("knorm", "hops", 0.9):
            return one | {"status": "failed"}
        return one | {"hallucinated": None} if one["question_id"] == "2" else one

    names = ("full", "snapkv", "knorm", "tova")
    frame = realistic_records(policies=names, ratios=[0.5, 0.9], contexts=5, change=spoil)
    frame = frame[~((frame.policy == "tova") & (frame.example_id == "base-3"))]
    found = every_duel(frame)
    assert set(found) == set(combinations(names, 2))
    for (one, other), own in found.items():
        assert own == [replace(duel, f1_p=None) for duel in duels(frame, one, [other])]
        cells = {(duel.task, duel.level.value) for duel in own}
        both_levels = {(task, ratio) for task in ("base", "hops") for ratio in (0.5, 0.9)}
        assert cells == both_levels - ({("hops", 0.9)} if "knorm" in (one, other) else set())
    tova = next(duel for duel in found["snapkv", "tova"] if duel.task == "base")
    assert (tova.questions, tova.contexts) == (16, 4), "what both have answered"


def test_the_full_cache_is_met_at_every_level() -> None:
    frame = realistic_records(policies=("full", "knorm"), ratios=[0.5, 0.9], contexts=4, tasks=["base"])
    half, most = duels(frame, "full", ["knorm"])
    assert (half.level.value, most.level.value) == (0.5, 0.9)
    by = frame.groupby(["policy", "ratio"]).f1.mean()
    assert half.f1.mean == pytest.approx(by["full", 0.0] - by["knorm", 0.5])
    assert most.f1.mean == pytest.approx(by["full", 0.0] - by["knorm", 0.9])
