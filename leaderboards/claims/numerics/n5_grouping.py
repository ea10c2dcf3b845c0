"""Claim N5: where query heads share a head of keys and values, cache on and cache off drift farther apart."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.numerics.walked import HALF, WALKED, contexts_of, rows_of
from leaderboards.claims.texts import N
from leaderboards.studies.numerics.layers import GROUPS, after_first

AMPLIFIED = 1.1
WHOSE = {"model": "the model", "random": "random weights"}


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    return each_part({part: partial(_amplified, evidence, whose) for whose, part in WHOSE.items()})


def _amplified(evidence: Mapping[str, Evidence], whose: str) -> Statistic:
    """Divides the drift after the first layer with the most query heads to a head by that with one, over contexts."""
    rows = rows_of(evidence, GROUPS, HALF)
    rows = rows[rows["whose"] == whose]
    largest = rows["size"].max() if len(rows) else 1
    if largest == 1:
        raise NoEvidenceError("no query heads share a head of keys and values, or none that can be repeated")
    together, alone = (rows[rows["size"] == size].sort_values("question_id") for size in (largest, 1))
    contexts = contexts_of(evidence, together)
    sums = [
        contexts.sums(np.array([*map(after_first, side["hidden"])], dtype=np.float64)) for side in (together, alone)
    ]
    if not sums[1].all():
        raise NoEvidenceError("with one query head to a head nothing drifts")
    return Statistic(sums[0] / sums[1], contexts.count, note=f"{largest} query heads to a head against 1")


CLAIM = Claim(
    identifier="N5",
    text=N,
    words="Sharing heads of keys and values among query heads amplifies the drift.",
    reported="Mistral, which shares, drifts more than Llama 2, which does not",
    statistic="relative drift of the residual stream, mean over the layers after the first, in float16, with the most "
    "query heads to a head of keys and values, over that of the model of equal function in which each query head "
    "has its own",
    side="at least",
    threshold=AMPLIFIED,
    experiments=(WALKED,),
    measure=_measure,
    unit="times",
    because="Repeating the heads leaves the drift as it is. This holds in these models, where 2 query heads share a "
    "head, and with random weights, where 8 do: a repeated head holds the same numbers, and each query head reads "
    "the same rows. Sharing by itself rounds nothing otherwise. The threshold was written before the run, "
    "the layers that count were not: behind the first layer alone, which the statistic was about at first, "
    "nothing drifted at all in 16 bits.",
)
