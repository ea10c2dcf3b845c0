"""Claim R9: larger models are no safer."""

from collections.abc import Mapping
from functools import partial

from leaderboards.claims.declaration import LARGER, Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.routing.routes import ONE_FACT, OVER_RATIOS, SEVERAL_FACTS, gap
from leaderboards.claims.texts import R


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    return each_part({task: partial(_higher, evidence, task) for task in (ONE_FACT, *SEVERAL_FACTS)})


def _higher(evidence: Mapping[str, Evidence], task: str) -> Statistic:
    small, large = (evidence[OVER_RATIOS.name + size].of(task) for size in ("", LARGER))
    return gap(large, small, "5 points are lost at {:.2f} by the larger model, at {:.2f} by the smaller")


CLAIM = Claim(
    identifier="R9",
    text=R,
    words="Larger models are no safer.",
    reported="14B no safer than 3B to 8B",
    statistic="the ratio at which the larger model has lost 5 points of F1, less that of the smaller one, mean over "
    "the same policies",
    side="at most",
    threshold=0.0,
    experiments=(OVER_RATIOS,),
    measure=_measure,
    unit="asked ratio",
    two_sizes=True,
)
