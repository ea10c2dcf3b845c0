"""Claim R1: accuracy is flat to moderate compression."""

from collections.abc import Mapping
from functools import partial

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.routing.routes import OVER_RATIOS, POLICIES, MasteredTasks
from leaderboards.claims.texts import R
from policies.declaration.names import FULL

MODERATE = 0.4


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    routes = MasteredTasks.of(evidence)
    return each_part({policy: partial(_share_kept, routes, policy) for policy in POLICIES})


def _share_kept(routes: MasteredTasks, policy: str) -> Statistic:
    kept = routes.mean(policy, MODERATE, "f1") / routes.mean(FULL, None, "f1")
    return Statistic(kept, routes.contexts, note=routes.left_out)


CLAIM = Claim(
    identifier="R1",
    text=R,
    words="Accuracy is flat to moderate compression.",
    reported="on many tasks, without one figure for all",
    statistic="F1 at an asked ratio of 0.4 as a share of the full cache's, mean over the tasks, by policy",
    side="at least",
    threshold=0.9,
    experiments=(OVER_RATIOS,),
    measure=_measure,
    because="On `reference` the control oracle, which keeps the evidence, has an F1 of 82 at the same ratio, where "
    "the full cache has 73 (256 questions about 24 contexts of the same tasks): the model can do with 60 % of the "
    "cache, and what these policies evict is what it needs. It reads its context in layer 1 alone (noise there takes "
    "base from 94 to 14, and noise in any other layer 5 points at most): no other layer makes up for what is lost "
    "there.",
)
