"""Claim R7: pruning that knows the question helps accuracy and hurts honesty."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from datasets_gen import USUAL_TOKENS
from leaderboards.claims.declaration import Claim, Experiment, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError, TaskEvidence
from leaderboards.claims.texts import R
from leaderboards.statistics.bootstrap import FloatArray

TASK = "base"
POLICIES = ("snapkv", "h2o", "tova")  # whose scores are attention, which the question changes
RATIOS = (0.5, 0.7)
AGNOSTIC, AWARE = (
    Experiment(
        name=f"question {mode}",
        tasks=TASK,
        policies=",".join(POLICIES),
        levels=(("ratio", ",".join(map(str, RATIOS))),),
        contexts=32,
        mode=mode,
        context_tokens=USUAL_TOKENS,
    )
    for mode in ("agnostic", "aware")
)


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    agnostic, aware = (evidence[one.name].of(TASK) for one in (AGNOSTIC, AWARE))
    if set(agnostic.records["question_id"]) != set(aware.records["question_id"]):
        raise NoEvidenceError("the two modes were asked other questions")
    return each_part(
        {
            "F1 gained, of 1": partial(_gain, aware, agnostic),
            "abstentions on unanswerable questions lost": partial(_loss, aware, agnostic),
        }
    )


def _mean(of_task: TaskEvidence, column: str, answerable: bool) -> FloatArray:
    means = [of_task.mean(policy, ratio, column, answerable=answerable) for policy in POLICIES for ratio in RATIOS]
    mean: FloatArray = np.mean(means, axis=0)
    return mean


def _gain(aware: TaskEvidence, agnostic: TaskEvidence) -> Statistic:
    agnostic.clean("f1")
    with_question, without = (_mean(of_task, "f1", answerable=True) / 100 for of_task in (aware, agnostic))
    note = f"F1 {100 * with_question[0]:.0f} with the question, {100 * without[0]:.0f} without"
    return Statistic(with_question - without, agnostic.contexts, note=note)


def _loss(aware: TaskEvidence, agnostic: TaskEvidence) -> Statistic:
    agnostic.clean("abstained", answerable=False)
    with_question, without = (_mean(of_task, "abstained", answerable=False) for of_task in (aware, agnostic))
    note = f"abstained {with_question[0]:.2f} with the question, {without[0]:.2f} without"
    return Statistic(without - with_question, agnostic.contexts, note=note)


CLAIM = Claim(
    identifier="R7",
    text=R,
    words="Pruning that knows the question helps accuracy and hurts honesty.",
    reported='"query-conditioned overcommitment", without a figure',
    statistic="question-aware against agnostic on the same questions, mean over policies and ratios 0.5 and 0.7: the "
    "gain in F1 of questions with an answer, and the fall in abstentions on questions without one",
    side="above",
    threshold=0.0,
    experiments=(AGNOSTIC, AWARE),
    measure=_measure,
)
