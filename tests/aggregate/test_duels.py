"""Two policies cell by cell, by hand and against what a test has to do."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from leaderboards.aggregate.duels import Duel, duels
from leaderboards.statistics.paired_difference import MeanDifference
from tests.support.records.synthetic_records import record


def duel_records(**policies: list[float]) -> pd.DataFrame:
    """Percent right of each policy on the questions in turn, two for each context, at ratio 0.5 of
    ``base``."""
    rows = []
    for policy, scores in policies.items():
        for number, score in enumerate(scores):
            context = f"base/{number // 2}"
            names = {
                "policy": policy,
                "example_id": context,
                "question_id": f"{context}/{number % 2}",
            }
            rows.append(record(**names, ratio=0.5, f1=score, hallucinated=score < 50))
    return pd.DataFrame(rows)


def only_duel(one: list[float], other: list[float]) -> Duel:
    """The only cell of two policies."""
    (duel,) = duels(duel_records(mine=one, theirs=other), "mine", ["theirs"])
    return duel


def test_the_difference_the_counts_and_the_test_are_those_of_a_hand() -> None:
    one, other = [100.0] * 16 + [0.0] * 4, [0.0] * 12 + [100.0] * 4 + [0.0] * 2 + [100.0] * 2
    duel = only_duel(one, other)
    assert (duel.questions, duel.contexts, duel.family) == (20, 10, 1)
    assert (duel.lead.difference.mean, *duel.lead.sides) == pytest.approx((50, 80, 30))
    # Six contexts of +100, one of -100 and three of 0: of the 2 ** 10 - 1 subsets those count whose
    # sum is at most 0.
    values = [100.0] * 6 + [0.0] * 3 + [-100.0]
    below = sum(sum(subset) <= 0 for size in range(1, 11) for subset in combinations(values, size))
    assert duel.lead.p == pytest.approx(2 * (below + 1) / 2**10)
    assert duel.verdict == "not distinguished", "six against one of ten contexts"
    assert only_duel(one, [0.0] * 20).verdict == "better"
    assert only_duel([0.0] * 20, one).verdict == "worse"


def test_a_copy_is_not_distinguished() -> None:
    duel = only_duel([100.0, 0.0] * 5, [100.0, 0.0] * 5)
    found = duel.lead
    assert (found.difference.mean, found.p) == (0.0, 1.0)
    assert found.verdict == "not distinguished"


def test_where_nothing_differs_the_interval_says_what_so_many_contexts_exclude() -> None:
    """Of twelve alike a difference of 26 points could be missed: 1 - 0.025 ** (1 / 12)."""
    found = only_duel([100.0, 0.0] * 12, [100.0, 0.0] * 12).lead.difference
    assert (found.low, found.high) == pytest.approx((-26.4648, 26.4648), abs=1e-4)
    assert found.text == "0 [−26, +26]"
    better = only_duel(CLEAR, [0.0] * 20).lead.difference
    assert better.low == 100, "what is told has the interval of its test"


def test_too_few_contexts_tell_nothing() -> None:
    """Four contexts, all on one side: chance alone does that once in eight times."""
    found = only_duel([100.0] * 8, [0.0] * 6 + [50.0] * 2).lead
    assert (found.difference.low, found.verdict) == (None, "not distinguished")
    assert found.p == pytest.approx(2 / 2**4)


def at_levels(values: dict[float, list[float]], task: str = "base") -> pd.DataFrame:
    """``mine`` with these values at each ratio, against nothing right at all."""
    frames = [
        duel_records(mine=own, theirs=[0.0] * len(own)).assign(task=task, ratio=ratio, level=ratio)
        for ratio, own in values.items()
    ]
    return pd.concat(frames, ignore_index=True)


CLEAR, CLOSE = [100.0] * 20, [100.0] * 12 + [0.0] * 8


def test_p_is_corrected_over_the_levels_of_a_task_and_over_nothing_else() -> None:
    alone = at_levels({0.5: CLOSE})
    (one,) = duels(alone, "mine", ["theirs"])
    assert (one.verdict, one.family) == ("better", 1)
    assert one.lead.p == pytest.approx(2 / 2**6)
    three = at_levels({0.1: CLOSE, 0.5: CLOSE, 0.9: CLOSE})
    found = duels(three, "mine", ["theirs"])
    assert [duel.lead.p for duel in found] == pytest.approx([3 * one.lead.p] * 3)
    assert {(duel.verdict, duel.family) for duel in found} == {("not distinguished", 3)}
    other_task = at_levels({0.1: CLEAR, 0.5: CLEAR, 0.9: CLEAR}, task="hops")
    beside = duels(pd.concat([alone, other_task], ignore_index=True), "mine", ["theirs"])
    assert next(duel for duel in beside if duel.task == "base") == one, (
        "whatever other tasks are listed"
    )


def test_the_interval_that_is_shown_is_that_of_the_corrected_test() -> None:
    rng = np.random.default_rng(3)
    heights = {ratio: 100 * rng.random(24) - 40 + 60 * ratio for ratio in (0.1, 0.3, 0.5, 0.7, 0.9)}
    frame = at_levels({ratio: list(np.clip(own, 0, 100)) for ratio, own in heights.items()})
    frame["right"] = frame["right"].astype(float)
    frame.loc[frame.policy == "theirs", "right"] = list(rng.random(sum(frame.policy == "theirs")))
    found = duels(frame, "mine", ["theirs"])
    verdicts = {duel.verdict for duel in found}
    assert len(verdicts) > 1, "some are told apart and some are not"
    for duel in found:
        assert (duel.lead.p < 0.05) == duel.lead.difference.is_clear


def directed(obeyed: float, leaked: float, undefended: float) -> pd.DataFrame:
    """Twelve contexts, each with a question that has directives, and an attack with a defence and
    one without; ``mine`` against a policy that obeys half and leaks half."""
    rows = []
    for context in range(12):
        for policy, values in (("mine", (obeyed, leaked, undefended)), ("theirs", (0.5, 0.5, 0.5))):
            for number, share in enumerate(values):
                names = {"policy": policy, "example_id": f"c{context}", "question_id": str(number)}
                own: dict[str, object] = (
                    {"directives_obeyed": share} if number == 0 else {"leakage": share}
                )
                own |= {
                    "f1": None,
                    "hallucinated": None,
                    "defence": "Say nothing." if number == 1 else "",
                }
                rows.append(record(task="instructions", ratio=0.5, **names, **own))
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        ((0.9, 0.1, 0.5), ("better", "better")),
        ((0.1, 0.9, 0.5), ("worse", "worse")),
        (
            (0.5, 0.5, 0.9),
            ("not distinguished", "not distinguished"),
        ),  # without a defence there is nothing to keep
    ],
)
def test_directives_obeyed_give_the_verdict_and_leakage_is_that_under_a_defence(
    given: tuple[float, float, float], verdicts: tuple[str, str]
) -> None:
    (duel,) = duels(directed(*given), "mine", ["theirs"])
    assert set(duel.contests) == {"directives_obeyed", "defended_leakage"}
    assert (duel.verdict, duel.contests["defended_leakage"].verdict) == verdicts


def test_an_interval_shows_whether_it_leaves_out_zero_and_a_difference_is_never_minus_zero() -> (
    None
):
    assert MeanDifference(52.0, -0.3, 81.0).text == "+52.0 [−0.3, +81.0]"
    assert MeanDifference(52.0, 0.3, 81.0).text == "+52.0 [+0.3, +81.0]"
    assert MeanDifference(12.0, 3.0, 20.0).text == "+12 [+3, +20]"
    assert MeanDifference(-0.1, None, None).text == "0"
    assert MeanDifference(-0.003, -0.004, 0.002).text == "0 [0, 0]"


def test_no_interval_leaves_the_scale() -> None:
    """Student's t of a few contexts knows no bounds."""
    assert MeanDifference.widened(-80.0, (-110.0, -50.0), (-99.0, -40.0)).text == "−80 [−100, −50]"
    assert MeanDifference.widened(4.0, (-120.0, 128.0), (-9.0, 9.0)).text == "+4 [−100, +100]"
