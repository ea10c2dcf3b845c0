"""How often a comparison finds a difference where there is none, and where there is one: by
simulation."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, ttest_1samp

from leaderboards.aggregate.pooled import Pooled, pool
from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import StudentTest

Contexts = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Contexts]
RUNS = 600
# 0.08: more false verdicts are not those of a test at 0.05.
HIGHEST = binom.ppf(0.999, RUNS, ALPHA) / RUNS


def normal(rng: np.random.Generator, contexts: int, task: int) -> Contexts:
    """Tasks vary differently: the degrees of freedom are then fewer."""
    return rng.normal(0, 1 + 3 * (task == 0), contexts)


def few_questions(rng: np.random.Generator, contexts: int, _: int) -> Contexts:
    """The mean difference of four questions, nine in ten of which either policy answers alike."""
    values: Contexts = rng.choice([-1.0, 0.0, 1.0], (contexts, 4), p=[0.05, 0.9, 0.05]).mean(axis=1)
    return values


def opposed_tasks(rng: np.random.Generator, contexts: int, task: int) -> Contexts:
    """One policy is better on every other task, by what it is worse on the next."""
    return rng.normal((-1) ** task, 1, contexts)


def student_test(values: list[Contexts]) -> StudentTest:
    return StudentTest.from_tasks(values, sum(int(np.count_nonzero(task)) for task in values))


@pytest.mark.parametrize("contexts", [6, 8, 12, 16])
@pytest.mark.parametrize(
    ("draw", "tasks"), [(normal, 1), (normal, 3), (few_questions, 2), (opposed_tasks, 4)]
)
def test_a_pooled_test_finds_a_difference_where_there_is_none_once_in_twenty_times(
    draw: Draw, tasks: int, contexts: int
) -> None:
    rng = np.random.default_rng(contexts)
    false = sum(
        student_test([draw(rng, contexts, task) for task in range(tasks)]).p < ALPHA
        for _ in range(RUNS)
    )
    assert false / RUNS <= HIGHEST


@pytest.mark.parametrize(("contexts", "least"), [(6, 0.45), (8, 0.62), (12, 0.85), (16, 0.94)])
def test_a_pooled_test_finds_a_difference_of_one_standard_deviation(
    contexts: int, least: float
) -> None:
    """Of one task; as often as Student's t does at all."""
    rng = np.random.default_rng(contexts)
    assert (
        sum(student_test([rng.normal(1, 1, contexts)]).p < ALPHA for _ in range(RUNS)) / RUNS
        >= least
    )


def test_of_one_task_it_is_the_t_test_of_scipy() -> None:
    values = np.random.default_rng(3).normal(0.4, 1, 9)
    expected = ttest_1samp(values, 0)
    test = student_test([values])
    assert test.p == pytest.approx(expected.pvalue)
    assert test.interval() == pytest.approx(expected.confidence_interval(1 - ALPHA))
    twins = student_test([values, values])
    assert (twins.mean, twins.freedom) == pytest.approx((test.mean, 2 * test.freedom)), (
        "equally varied tasks pool"
    )
    assert twins.error == pytest.approx(test.error / np.sqrt(2))


def test_a_smallest_difference_is_found_four_times_in_five() -> None:
    rng = np.random.default_rng(5)
    true = StudentTest(0, 1 / np.sqrt(10), 9, 0).smallest()
    assert true is not None
    assert (
        0.76
        <= sum(student_test([rng.normal(true, 1, 10)]).p < ALPHA for _ in range(RUNS)) / RUNS
        <= 0.84
    )


def test_no_difference_is_named_as_seen_where_so_few_contexts_tell_none() -> None:
    """Six on one side are chance once in 32 times: at a level of Holm's method none is told,
    however large."""
    test = StudentTest(mean=500, error=1, freedom=5, least=2.0 ** (1 - 6))
    assert test.p == 2.0 ** (1 - 6)
    assert test.smallest(ALPHA) is not None
    assert (test.smallest(ALPHA / 6), test.interval(ALPHA / 6)[0]) == (None, 0)
    assert test.smallest(ALPHA / 6, times=4) is not None, "24 contexts tell some"


def two_policies(seed: int, contexts: int, chances: tuple[float, float]) -> pd.DataFrame:
    """Two tasks, two levels and four questions a context, each as hard for both; ``chances`` of a
    right answer."""
    rng = np.random.default_rng(seed)
    names = [
        ("task", ["base", "hops"]),
        ("draw_id", range(contexts)),
        ("question_id", range(4)),
        ("level", [0.5, 0.9]),
    ]
    index = pd.MultiIndex.from_product([of for _, of in names], names=[name for name, _ in names])
    questions = index.to_frame(index=False).astype({"draw_id": str, "question_id": str})
    hard = rng.random(len(questions))
    policies = [
        questions.assign(
            policy=policy,
            right=np.where(rng.random(len(hard)) < 0.5, hard, rng.random(len(hard))) < chance,
        )
        for policy, chance in zip(("mine", "theirs"), chances, strict=True)
    ]
    frame = pd.concat(policies, ignore_index=True).assign(
        mode="agnostic", level_kind="ratio", repeat=0, status="ok"
    )
    frame = frame.assign(
        defence="", realised_ratio=frame["level"], example_id=frame["task"] + frame["draw_id"]
    )
    frame = frame.assign(
        **dict.fromkeys(
            ("directives_obeyed", "leakage", "next_token_accuracy", "kv_bytes", "whole_prompt")
        )
    )
    return frame.assign(
        draw_id=frame["example_id"], question_id=frame["example_id"] + "/" + frame["question_id"]
    )


def verdicts(contexts: int, chances: tuple[float, float], runs: int) -> list[Pooled]:
    return [
        pool(two_policies(seed, contexts, chances), "mine", ["theirs"])[0] for seed in range(runs)
    ]


@pytest.mark.parametrize("contexts", [4, 6])
def test_a_comparison_of_equals_has_a_false_verdict_once_in_twenty_times(contexts: int) -> None:
    runs = 50
    lines = verdicts(contexts, (0.5, 0.5), runs)
    false = sum(one.verdict != "not distinguished" for one in lines)
    assert false <= (binom.ppf(0.999, runs, ALPHA) if contexts >= 6 else 0)
    assert all((one.p is None) == (one.difference.low is None) for one in lines)
    assert contexts >= 6 or all(one.p is None for one in lines), (
        "below six contexts there is no test"
    )


def test_a_comparison_finds_what_is_there() -> None:
    """Three in four right against one in four."""
    runs = 20
    for contexts, least in ((6, 0.9), (16, 1.0)):
        found = [one.verdict for one in verdicts(contexts, (0.75, 0.25), runs)]
        assert found.count("better") >= least * runs
        assert "worse" not in found
