"""A gate: which losses it lets pass, and what it says of them."""

from dataclasses import replace

import pytest

from leaderboards.aggregate.gate import Gate, GateRow
from leaderboards.aggregate.pooled import Pooled, pool_levels
from leaderboards.statistics.paired_difference import MeanDifference
from policies import UNTREATED
from tests.comparisons.test_pairing import HALF, MOST, paired_records
from tests.support.wording import assert_says


def gate_row(
    mean: float, low: float | None = None, high: float | None = None, p: float | None = None
) -> Pooled:
    """SnapKV against int4 at ratio 0.5, with another difference."""
    (made,) = pool_levels(paired_records(("int4", UNTREATED), ("snapkv", HALF)), "snapkv", ["int4"])
    return replace(made, difference=MeanDifference(mean, low, high), p=p)


def judge_gate(gate: Gate, *means: Pooled) -> tuple[list[bool], str]:
    rows = gate.rows(means)
    return [one.passes for one in rows], gate.fault(rows) or gate.success(rows)


@pytest.mark.parametrize(
    ("mean", "passes"), [(-4.9, True), (-5.0, True), (-5.1, False), (+20.0, True)]
)
def test_the_measured_mean_decides_whether_a_loss_is_above_what_is_allowed(
    mean: float, passes: bool
) -> None:
    assert judge_gate(Gate(5, fails_if_worse=False), gate_row(mean))[0] == [passes]


@pytest.mark.parametrize(
    ("mean", "low", "high", "sure", "words"),
    [
        (-12.0, -20.0, -6.0, True, "its interval excludes a loss of 5 or less"),
        (-12.0, -20.0, -4.0, False, "its interval reaches 5, so that it may be chance"),
        (-2.0, -4.0, +1.0, True, "its interval excludes a loss above 5"),
        (-2.0, -9.0, +1.0, False, "its interval reaches a loss above 5"),
        (-2.0, None, None, False, "too few contexts differ for an interval"),
    ],
)
def test_it_says_whether_the_interval_excludes_the_other_answer(
    mean: float, low: float | None, high: float | None, sure: bool, words: str
) -> None:
    gate, made = Gate(5, fails_if_worse=False), gate_row(mean, low, high)
    assert GateRow(made, 5, fails_if_worse=False).is_sure is sure
    said = judge_gate(gate, made)[1]
    assert words in said
    assert_says(said, "snapkv", made.difference.text, "int4 at ratio 0.5")


def test_worse_fails_by_the_verdict_and_not_by_the_mean() -> None:
    gate = Gate(None, fails_if_worse=True)
    large, told = gate_row(-40, -90, 10, p=0.2), gate_row(-3, -4, -2, p=0.01)
    assert judge_gate(gate, large)[0] == [True], "a large mean that may be chance"
    passes, said = judge_gate(gate, large, told)
    assert passes == [True, False]
    assert said.startswith(
        "the gate fails: snapkv −3 [−4, −2] points against int4 at ratio 0.5, the verdict is worse"
    )
    assert judge_gate(gate, gate_row(+3, 2, 4, p=0.01))[0] == [True], "better is no fault"


def test_the_largest_loss_is_named_and_the_others_are_counted() -> None:
    cells = paired_records(("int4", UNTREATED), ("snapkv", HALF), ("snapkv", MOST))
    passes, said = judge_gate(
        Gate(5, fails_if_worse=False), *pool_levels(cells, "snapkv", ["int4"])
    )
    assert passes == [False, False]  # it loses 12.5 and 75 points
    assert "−75" in said
    assert "at ratio 0.9" in said
    assert said.endswith("2 of 2 comparisons fail")
