"""Claim F4: layers differ, one band is a buffer and another critical."""

from collections.abc import Mapping

import numpy as np

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.faults.noise import BANDS, QUARTERS, TASK
from leaderboards.claims.texts import F

RATE = 0.02


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    of_task = evidence[BANDS.name].of(TASK)
    kept = np.stack([of_task.share_kept(quarter, RATE) for quarter in QUARTERS])
    most, least = int(np.argmax(kept[:, 0])), int(np.argmin(kept[:, 0]))
    shares = ", ".join(f"Q{number} {share:.2f}" for number, share in enumerate(kept[:, 0], 1))
    note = f"kept by the quarter that is damaged, from the input: {shares}"
    return [Statistic(kept[most] - kept[least], of_task.contexts, note=note)]


CLAIM = Claim(
    identifier="F4",
    text=F,
    words="Layers differ: one band is a buffer, another is critical.",
    reported="with 2 % of one quarter damaged, 0.86 of 0.87 in the third quarter and 0.12 in the last are right",
    statistic="what is kept with noise in one quarter of the layers: the best quarter above the worst (it is the "
    "largest of six differences, so that chance makes it larger by about its standard error)",
    side="above",
    threshold=0.3,
    experiments=(BANDS,),
    measure=_measure,
    because="At 2 % the noise is too weak to tell anything (see F1). At 30 % the first quarter of the layers leaves "
    "25 % right on `reference` and each other quarter 95, as the full cache does: there is one critical band, "
    "the first, and three buffers, since the model reads its context in layer 1 alone. `reference-qwen`: 20 "
    "and 97.",
)
