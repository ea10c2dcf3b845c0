"""The statistics of text R, on records where the truth is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import LARGER, NoStatistic, Statistic
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.routing import (
    AGNOSTIC,
    AWARE,
    OBSERVED,
    OVER_RATIOS,
    POLICIES,
    RATIOS,
    crossing,
    first_loss,
)
from leaderboards.claims.texts.routing import MIDDLE_RATIOS as AWARE_RATIOS
from leaderboards.claims.texts.routing import SCORED_BY_ATTENTION as AWARE_POLICIES
from leaderboards.claims.verdict import count_decided, judge
from tests.support.records.claim_statistics import measured, value
from tests.support.wording import assert_says

TASKS = ("base", "hops", "multi_entity")
CONTEXTS, QUESTIONS = 12, 4
# Of task, policy, ratio, context and question.
Answer = Callable[[str, str, float, int, int], dict[str, Any]]


def routed_records(
    answer: Answer, tasks: tuple[str, ...] = TASKS, policies: tuple[str, ...] = POLICIES
) -> DataFrame:
    """Rows of the full cache and of policies over ratios; the last question of each context has no
    answer."""
    cells = [("full", 0.0), *((policy, ratio) for policy in policies for ratio in RATIOS)]
    return DataFrame(
        {
            "task": task,
            "policy": policy,
            "level_kind": "ratio",
            "level": ratio,
            "draw_id": f"{task}/{context:02}",
            "question_id": f"{task}/{context:02}/{question}",
            "status": "ok",
            "answerable": question < QUESTIONS - 1,
            "f1": 100.0,
            "hallucinated": False,
            "abstained": False,
            "answered": True,
            "ger": 0.0 if question < QUESTIONS - 1 else None,
        }
        | answer(task, policy, ratio, context, question)
        for task in tasks
        for policy, ratio in cells
        for context in range(CONTEXTS)
        for question in range(QUESTIONS)
    )


def over_ratios(answer: Answer) -> dict[str, Evidence]:
    return {OVER_RATIOS.name: Evidence(routed_records(answer))}


def test_flat_is_what_f1_keeps_at_0_4_by_policy() -> None:
    """snapkv keeps 60 of 80 points at 0.4, whatever it does elsewhere; the others keep all."""

    def answer(task: str, policy: str, ratio: float, context: int, question: int) -> dict[str, Any]:
        return {"f1": {0.4: 60.0, 0.5: 0.0}.get(ratio, 80.0) if policy == "snapkv" else 80.0}

    found = measured("R1", over_ratios(answer))
    assert list(found) == list(POLICIES)
    assert value(found["snapkv"]) == pytest.approx(0.75)
    assert value(found["knorm"]) == pytest.approx(1.0)


@pytest.mark.parametrize(("last_before", "peak"), [(0.8, 0.85), (0.3, 0.35)])
def test_cliff_is_where_the_rate_rises_fastest(last_before: float, peak: float) -> None:
    def answer(task: str, policy: str, ratio: float, context: int, question: int) -> dict[str, Any]:
        return {"hallucinated": ratio > last_before and (context + question) % 2 == 0}

    found = measured("R2", over_ratios(answer))["hallucinated, of all answers"]
    assert value(found) == pytest.approx(peak)


def test_partial_correlation_is_that_of_residuals() -> None:
    """As measured, it is Pearson's of what is left of both once the means of task, policy and ratio
    are taken off."""
    rng = np.random.default_rng(0)
    evicted = rng.random((len(TASKS), len(POLICIES), len(RATIOS), CONTEXTS))
    made_up = (rng.random(evicted.shape) + evicted > 1).astype(float)
    places = {
        name: {one: place for place, one in enumerate(of)}
        for name, of in (("task", TASKS), ("policy", POLICIES), ("ratio", RATIOS))
    }

    def answer(task: str, policy: str, ratio: float, context: int, question: int) -> dict[str, Any]:
        if policy == "full":
            return {}
        at = places["task"][task], places["policy"][policy], places["ratio"][ratio], context
        return {"ger": evicted[at] if question < 3 else None, "hallucinated": bool(made_up[at])}

    residuals = [
        (values - values.mean(axis=-1, keepdims=True)).ravel() for values in (evicted, made_up)
    ]
    expected = np.corrcoef(*residuals)[0, 1]
    assert value(
        measured("R3", over_ratios(answer))["hallucinated, of all answers"]
    ) == pytest.approx(expected)


def test_five_points_are_lost_on_the_line_between_two_ratios() -> None:
    """Nothing is lost at 0.5 and 20 points at 0.6: 5 points a quarter of the way. knorm never loses
    5."""

    def answer(task: str, policy: str, ratio: float, context: int, question: int) -> dict[str, Any]:
        return {
            "f1": 80.0
            if policy == "snapkv" and ratio > 0.5
            else 96.0
            if policy == "knorm" and ratio
            else 100.0
        }

    found = Evidence(routed_records(answer)).of("base")
    assert first_loss(found, "snapkv")[0] == pytest.approx(0.525)
    assert first_loss(found, "knorm")[0] == pytest.approx(0.9)


def breaks_at(ratios: dict[str, float]) -> Answer:
    """Everything is right up to a ratio, by task, and nothing beyond."""

    def answer(task: str, policy: str, ratio: float, context: int, question: int) -> dict[str, Any]:
        return {"f1": 100.0 * (ratio <= ratios[task] + 1e-9)}

    return answer


def test_several_facts_break_first_where_they_do() -> None:
    found = measured("R8", over_ratios(breaks_at({"base": 0.7, "hops": 0.3, "multi_entity": 0.7})))
    assert value(found["hops"]) == pytest.approx(0.4)
    assert value(found["multi_entity"]) == pytest.approx(0.0)


def test_a_larger_model_is_no_safer_where_it_breaks_at_the_same_ratio_or_before() -> None:
    small = Evidence(
        routed_records(breaks_at({"base": 0.4, "hops": 0.5, "multi_entity": 0.8})), name="small"
    )
    large = Evidence(
        routed_records(breaks_at({"base": 0.8, "hops": 0.5, "multi_entity": 0.2})), name="large"
    )
    found = measured("R9", {OVER_RATIOS.name: small, OVER_RATIOS.name + LARGER: large})
    assert [value(found[task]) for task in TASKS] == pytest.approx([0.4, 0.0, -0.6])
    assert isinstance(found["base"], Statistic)
    assert_says(found["base"].note, "5 points", "0.81 and at 0.41")


@pytest.mark.parametrize("identifier", ["R9", "F5"])
def test_one_size_decides_nothing_and_is_not_counted(identifier: str) -> None:
    claim = claims()[identifier]
    (judged,) = judge(
        [claim],
        {claim.experiments[0].name: Evidence(routed_records(breaks_at(dict.fromkeys(TASKS, 0.5))))},
    )
    why = (
        "precondition not met: it takes two sizes of one family: give the larger model by --larger"
    )
    assert (judged.verdict, judged.is_met, judged.why) == ("undecided", False, why)
    assert count_decided([judged]) == (0, 0)


def test_two_sizes_that_were_asked_other_questions_are_no_pairs() -> None:
    whole = routed_records(breaks_at(dict.fromkeys(TASKS, 0.5)))
    fewer = whole[whole["draw_id"] != "base/00"]
    found = measured(
        "R9", {OVER_RATIOS.name: Evidence(whole), OVER_RATIOS.name + LARGER: Evidence(fewer)}
    )
    assert isinstance(found["base"], NoStatistic)
    assert "base: the two runs" in str(found["base"].reason)
    assert isinstance(found["hops"], Statistic)


def in_mode(right: float, abstained: bool, questions: int = CONTEXTS) -> Evidence:
    def answer(task: str, policy: str, ratio: float, context: int, question: int) -> dict[str, Any]:
        treated = policy != "full" and ratio in AWARE_RATIOS
        unanswerable = question == QUESTIONS - 1
        return {
            "f1": right if treated else 100.0,
            "abstained": unanswerable and (abstained or not treated),
        }

    made = routed_records(answer, ("base",), AWARE_POLICIES)
    return Evidence(made[made["draw_id"] < f"base/{questions:02}"])


def test_the_question_helps_accuracy_and_hurts_honesty() -> None:
    """With the question F1 rises from 40 to 90, and what has no answer is answered."""
    found = measured("R7", {AGNOSTIC.name: in_mode(40, True), AWARE.name: in_mode(90, False)})
    assert value(found["F1 gained, of 1"]) == pytest.approx(0.5)
    assert value(found["abstentions on unanswerable questions lost"]) == pytest.approx(1.0)


LETTERS = "ABC"


def probed(lost_by_probe: float, lost_by_f1: float, layer: int = 2) -> Evidence:
    """Hidden states of two layers. Behind one the first letter can be read up to a ratio, and F1 is
    whole up to another; the other layer holds nothing."""
    generator = np.random.default_rng(0)
    rows, states = [], []
    levels = tuple(map(float, dict(OBSERVED.levels)["ratio"].split(",")))
    cells = [
        ("full", 0.0),
        *((policy, ratio) for policy in OBSERVED.policies.split(",") for ratio in levels),
    ]
    for policy, ratio in cells:
        for number in range(36):
            letter = number % len(LETTERS)
            cell: dict[str, Any] = {"task": "base", "question_id": f"{number:02}", "policy": policy}
            cell |= {"level_kind": "ratio", "level": ratio, "repeat": 0}
            f1 = 100.0 * (ratio <= lost_by_f1)
            golds, right = [LETTERS[letter] + "da"], f1 > 0
            place = {
                "draw_id": f"{number // 3:02}",
                "answer_tokens": 1,
                "answer_type": "person",
                "status": "ok",
            }
            rows.append(
                {**cell, **place, "golds": golds, "f1": f1, "right": right, "answerable": True}
            )
            for depth in (1, 2):
                state = generator.normal(size=4) * 0.1 * (depth == layer)
                state[letter] += 4.0 * (depth == layer and ratio <= lost_by_probe)
                states.append({**cell, "layer": depth, "state": state.astype("<f2").tobytes()})
    return Evidence(DataFrame(rows), tables={"states": DataFrame(states)})


def test_representations_degrade_first_where_they_do() -> None:
    """F1 is whole to 0.8 and nothing at 0.9: a tenth is lost at 0.81. The probe is whole to 0.3 and
    chance at 0.5."""
    found = measured("R4", {OBSERVED.name: probed(0.3, 0.8)})
    assert list(found) == ["middle layer, 1 of 2", "last layer, 2 of 2"]
    last = found["last layer, 2 of 2"]
    assert 0.81 - 0.4 < value(last) < 0.81 - 0.3
    assert isinstance(last, Statistic)
    assert (last.values > 0).all()
    assert last.n == 12


def test_representations_that_outlast_answers_say_so() -> None:
    last = measured("R4", {OBSERVED.name: probed(0.8, 0.3)})["last layer, 2 of 2"]
    assert value(last) < -0.3


def test_probe_that_finds_nothing_with_the_full_cache_decides_nothing() -> None:
    first = measured("R4", {OBSERVED.name: probed(0.3, 0.8)})["middle layer, 1 of 2"]
    assert isinstance(first, NoStatistic)
    assert "there is nothing to lose" in first.reason


def test_crossing_by_hand() -> None:
    """Of losses 0, 0.05 and 0.25 a tenth is passed a quarter of the way; what never loses so much
    has the last."""
    losses = np.array([[0.0, 0.05, 0.25], [0.0, 0.0, 0.05]])
    assert crossing([0.5, 0.9], losses, 0.1).tolist() == pytest.approx([0.6, 0.9])
