"""Claim N4: with the cache, more answers are right than without it."""

from collections.abc import Mapping

import numpy as np

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.numerics.walked import HALF, WALKED, pairs_of, statistic_of
from leaderboards.claims.texts import N
from leaderboards.statistics.significance import mcnemar_p, p_text
from leaderboards.studies.numerics.pairs import FREE


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    rows = pairs_of(evidence, FREE, HALF, sampling=None)
    rows = rows[rows["right"].notna()]
    if rows.empty:
        raise NoEvidenceError("no task that was walked has answers that are right or wrong")
    on, off = (rows[name].to_numpy(dtype=np.float64) for name in ("right", "other_right"))
    only_on, only_off = int((on > off).sum()), int((off > on).sum())
    if not only_on + only_off:
        raise NoEvidenceError(f"all {len(rows)} pairs of answers are right, or wrong, together")
    note = (
        f"{only_on} right with the cache alone, {only_off} without it alone, p {p_text(mcnemar_p(only_on, only_off))}"
    )
    return [statistic_of(evidence, rows, on - off, f"{note} (McNemar)")]


CLAIM = Claim(
    identifier="N4",
    text=N,
    words="With the cache more answers are right than without it.",
    reported="cache on is better in 8 of 9 settings",
    statistic="share of the answers that are right with the cache less the share without it, in float16, over all ways "
    "to choose tokens, each path going on from its own",
    side="above",
    threshold=0.0,
    experiments=(WALKED,),
    measure=_measure,
)
