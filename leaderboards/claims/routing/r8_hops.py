"""Claim R8: chains of facts and facts about several people break first."""

from collections.abc import Mapping
from functools import partial

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, TaskEvidence
from leaderboards.claims.routing.routes import ONE_FACT, OVER_RATIOS, SEVERAL_FACTS, gap
from leaderboards.claims.texts import R


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    records = evidence[OVER_RATIOS.name]
    return each_part({task: partial(_lower, records.of(ONE_FACT), records, task) for task in SEVERAL_FACTS})


def _lower(one_fact: TaskEvidence, evidence: Evidence, task: str) -> Statistic:
    return gap(one_fact, evidence.of(task), f"{ONE_FACT} loses 5 points at {{:.2f}}, {task} at {{:.2f}}")


CLAIM = Claim(
    identifier="R8",
    text=R,
    words="Chains of facts and several people break first.",
    reported='"heterogeneous cliffs", without one figure',
    statistic="the ratio at which base has lost 5 points of F1, less that at which the other task has, mean over the "
    "same policies",
    side="above",
    threshold=0.0,
    experiments=(OVER_RATIOS,),
    measure=_measure,
    unit="asked ratio",
)
