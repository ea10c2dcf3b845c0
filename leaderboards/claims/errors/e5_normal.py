"""Claim E5: normal error degrades quickly with its spread, and more than uniform error of a larger spread."""

from collections.abc import Mapping

import numpy as np

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.errors.tables import ERRORS, EVERYWHERE, NORMALS, SCORES, STDS, WIDE
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.texts import E


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    found = []
    for score in SCORES:
        of_task = score.of(evidence, ERRORS)
        kept = np.stack([of_task.kept(error, EVERYWHERE, score.column) for error in NORMALS])
        places = np.array(STDS) - np.mean(STDS)
        slope = places @ kept / (places @ places)
        note = "keeps " + ", ".join(f"{share:.2f} at {std:g}" for share, std in zip(kept[:, 0], STDS, strict=True))
        found.append(Statistic(slope, of_task.contexts, f"slope over the spread, {score.part}", note))
        wide = of_task.kept(WIDE, EVERYWHERE, score.column)
        found.append(Statistic(kept[-1] - wide, of_task.contexts, f"normal less wide uniform, {score.part}"))
    return found


CLAIM = Claim(
    identifier="E5",
    text=E,
    words="Normal error degrades quickly with its spread, and more than uniform error of a larger one.",
    reported="next token 0.80 and 0.61 of the control at spreads 0.25 and 0.5; 0.61 with uniform(-1.5, 1.5)",
    statistic="slope of what is kept over the spread; what normal(0, 0.5) keeps less what uniform(-1.5, 1.5) keeps",
    side="below",
    threshold=0.0,
    experiments=(ERRORS,),
    measure=_measure,
    remark="By the text's own counts normal(0, 0.5) and uniform(-1.5, 1.5) both keep 0.61: no difference. The spread "
    "of the uniform error is 3 / √12 = 0.87.",
)
