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
    because="These models have no critical band. At 2 % the noise is too weak to tell anything (see F1); at 30 % "
    "each quarter of the layers leaves 94 to 95 % right on `reference` (95 with the full cache), since "
    "what is lost in one is read in another. `reference-qwen`: 92 in the first quarter and 96 to 97 in the "
    "others (97 with the full cache).",
)
