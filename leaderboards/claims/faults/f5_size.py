"""Claim F5: size helps against structured noise and not against Gaussian noise."""

from collections.abc import Mapping

import numpy as np

from leaderboards.claims.declaration import LARGER, Claim, Statistic
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.faults.noise import DISTRACTOR, GAUSSIAN, KINDS_OF_NOISE, TASK
from leaderboards.claims.texts import F


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    small, large = (evidence[KINDS_OF_NOISE.name + size].of(TASK) for size in ("", LARGER))
    gains = [
        large.share_kept(kind, rate) - small.share_kept(kind, rate)
        for kind, rate in ((DISTRACTOR, 0.3), (GAUSSIAN, 0.02))
    ]
    note = f"larger above smaller: distractor at 0.3 {gains[0][0]:+z.2f}, gaussian at 0.02 {gains[1][0]:+z.2f}"
    return [Statistic(np.subtract(*gains), min(small.contexts, large.contexts), note=note)]


CLAIM = Claim(
    identifier="F5",
    text=F,
    words="Size helps against structured noise and not against Gaussian noise.",
    reported="7B against 1.5B: distractor at 30 % keeps 0.57 against 0.11, Gaussian at 2 % 0.02 against 0.00",
    statistic="how much more the larger model keeps with distractor at 0.3 than the smaller one, less the same with "
    "Gaussian noise at 0.02",
    side="above",
    threshold=0.0,
    experiments=(KINDS_OF_NOISE,),
    measure=_measure,
    two_sizes=True,
)
