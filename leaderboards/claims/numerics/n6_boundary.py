"""Claim N6: answers part where two tokens are nearly as likely."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from pandas import DataFrame

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.numerics.walked import HALF, WALKED, contexts_of, flipped, pairs_of, statistic_of
from leaderboards.claims.texts import N
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.numerics.pairs import FORCED, joined

THIRDS = 3


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    return each_part({"margin": partial(_margin, evidence), "early flips": partial(_early, evidence)})


def _margin(evidence: Mapping[str, Evidence]) -> Statistic:
    """Counts the flips at which the margin is below the median margin of all steps behind the same tokens."""
    parted, forced = flipped(evidence, HALF), pairs_of(evidence, FORCED, HALF)
    median = float(np.nanmedian(joined(forced["margin"])))
    margins = _at_flip(parted, "margin")
    rows, known = parted[~np.isnan(margins)], margins[~np.isnan(margins)]
    if not len(known):
        raise NoEvidenceError("all answers that differ part where one has ended: no margin is known there")
    note = f"{len(known)} flips; median margin {np.median(known):.2g} there and {median:.2g} at all steps"
    return statistic_of(evidence, rows, (known < median) - 0.5, note)


def _early(evidence: Mapping[str, Evidence]) -> Statistic:
    """Compares KL at the flips of the first third with that at those of the last third, by their step."""
    parted = flipped(evidence, HALF)
    kl = _at_flip(parted, "kl")
    rows, kl = parted[np.isfinite(kl)], kl[np.isfinite(kl)]
    if len(rows) < THIRDS:
        raise NoEvidenceError(f"{len(rows)} flips have no first and last third")
    contexts, flips = contexts_of(evidence, rows), rows["flip"].to_numpy(dtype=np.float64)
    first, last = flips <= np.quantile(flips, 1 / THIRDS), flips >= np.quantile(flips, 1 - 1 / THIRDS)
    if (first & last).any():
        raise NoEvidenceError(f"{len(rows)} flips are at too few different steps to have a first and a last third")
    with np.errstate(invalid="ignore"):
        means = [contexts.sums(kl * part) / contexts.sums(part.astype(np.float64)) for part in (first, last)]
    return Statistic(means[0] - means[1], contexts.count, note=f"{len(rows)} flips")


def _at_flip(rows: DataFrame, column: str) -> FloatArray:
    """Returns what each row has at its flip; NaN where an answer has ended there, so that nothing was compared."""
    lists = zip(rows[column], rows["flip"].astype(int), strict=True)
    return np.array([one[step] if step < len(one) else np.nan for one, step in lists], dtype=np.float64)


CLAIM = Claim(
    identifier="N6",
    text=N,
    words="Answers part at the decision boundary, and early partings have the larger divergence.",
    reported="in 8 of 9 settings",
    statistic="of the answers in float16 that differ, greedy: share of the first differing steps at which the margin "
    "between the two largest logits is below its median over all steps, less one half; mean KL at the third that part "
    "first less that at the third that part last",
    side="above",
    threshold=0.0,
    experiments=(WALKED,),
    measure=_measure,
)
