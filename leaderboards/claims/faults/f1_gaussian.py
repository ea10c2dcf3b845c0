"""Claim F1: a little Gaussian noise is catastrophic."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.faults.noise import GAUSSIAN, KINDS_OF_NOISE, TASK
from leaderboards.claims.texts import F

RATE = 0.02


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    of_task = evidence[KINDS_OF_NOISE.name].of(TASK)
    return [Statistic(of_task.kept(GAUSSIAN, RATE), of_task.contexts)]


CLAIM = Claim(
    identifier="F1",
    text=F,
    words="A little Gaussian noise is catastrophic.",
    reported="at 2 % of the entries 0.02 of 0.87 (7B) and 0.00 of 0.66 (1.5B) are right",
    statistic="right answers at 2 % of the entries, drawn anew at every step, as a share of the full cache's",
    side="at most",
    threshold=0.2,
    experiments=(KINDS_OF_NOISE,),
    measure=_measure,
)
