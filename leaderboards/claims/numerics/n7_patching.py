"""Claim N7: at a flip, patching the residual stream recovers nothing, and patching keys and values does."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.numerics.walked import HALF, WALKED, rows_of, statistic_of
from leaderboards.claims.texts import N
from leaderboards.studies.numerics.layers import ALL, PATCHES

HALF_MORE = 0.5


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    rows = rows_of(evidence, PATCHES, HALF)
    flips = rows[rows["at_flip"].astype(bool)]
    if flips.empty:
        answers = rows["question_id"].nunique()
        raise NoEvidenceError(f"none of {answers} answers that were patched has a flip: there is nothing to localise")
    return [_difference(evidence, flips.assign(recovered=1 - flips["kl_patched"] / flips["kl"]))]


def _difference(evidence: Mapping[str, Evidence], flips: DataFrame) -> Statistic:
    """Averages over flips the recovery by all rows less that by the stream of one layer, mean over all but the last:
    behind that the stream is all that logits are computed from."""
    of_stream = flips[(flips["rows"] == "residual") & (flips["layer"] != ALL)]
    of_stream = of_stream[of_stream["layer"] < of_stream["layer"].max()]
    if of_stream.empty:
        raise NoEvidenceError("a model of one layer has no stream but that which logits are computed from")
    stream = of_stream.groupby("question_id")["recovered"].mean()
    rows = flips[(flips["rows"] == "keys and values") & (flips["layer"] == ALL)].drop_duplicates("question_id")
    by_stream = stream[rows["question_id"]].to_numpy(dtype=np.float64)
    by_rows = rows["recovered"].to_numpy(dtype=np.float64)
    note = f"{len(rows)} flips; median {np.median(by_rows):.2f} by rows and {np.median(by_stream):.2f} by the stream"
    return statistic_of(evidence, rows, by_rows - by_stream, note)


CLAIM = Claim(
    identifier="N7",
    text=N,
    words="At a flip, patching the residual stream recovers nothing, and patching keys and values does.",
    reported="patching the stream: median below 1 %; patching keys and values is named as a missing experiment",
    statistic="at the first token that differs, in float16, greedy: share of the divergence that goes with keys and "
    "values of all layers from cache off, less the share that goes with the residual stream behind one layer, mean "
    "over all layers but the last",
    side="at least",
    threshold=HALF_MORE,
    experiments=(WALKED,),
    measure=_measure,
)
