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
    because="SnapKV, H2O and Expected Attention are flat, StreamingLLM and K-Norm are not. StreamingLLM keeps the "
    "first and last tokens, and facts lie all over a context: at 0.3 of the default run a third of the "
    "answers' tokens is gone everywhere. K-Norm keeps keys of small norm, and in these models evidence has "
    "large ones: in layers 1, 3, 5 and 9 of `reference` it is 14 to 20 % of the tenth of the keys with the "
    "largest norms, and 5 % of the context. With 5 % of the cache gone nearly all answers fall silent (six "
    "contexts of base), where KeyDiff, which judges the same keys by their direction, loses none at 30 %; "
    "and the evidence's rows, put back, repair 96 to 99 % of what K-Norm loses.",
)
