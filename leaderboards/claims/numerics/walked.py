"""The experiment of the claims about numerics: every answer with the cache and without it, in several types of
numbers."""

from collections.abc import Mapping, Sequence

import numpy as np
from pandas import DataFrame

from leaderboards.claims.contexts import Contexts
from leaderboards.claims.declaration import Experiment, Statistic
from leaderboards.claims.evidence import Evidence, NoEvidenceError, table_of
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.numerics.pairs import CACHE, FREE, TABLE, flip_of, with_draws

HALF = "float16"  # which the text is about
# Of two tasks, so that 60 contexts are walked: where none of them differs, fewer than one in twenty does.
WALKED = Experiment(name="walks", tasks="base,prose", policies="full", levels=(), contexts=30, suite="numerics")


def pairs_of(evidence: Mapping[str, Evidence], regime: str, dtype: str, sampling: str | None = "greedy") -> DataFrame:
    """Returns the pairs of cache on and cache off in a type of numbers, with the context of each, and the step at which
    free-running answers part, or NaN; :class:`NoEvidenceError` where there are none. ``sampling``: None for all."""
    given = evidence[WALKED.name]
    table = table_of(given.tables, TABLE, "walked")
    rows = table[(table["pair"] == CACHE) & (table["regime"] == regime) & (table["dtype"] == dtype)]
    if sampling is not None:
        rows = rows[rows["sampling"] == sampling]
    if rows.empty:
        raise NoEvidenceError(f"nothing was walked in {dtype}")
    rows = with_draws(rows, given.records)
    flips = [flip_of(*tokens) for tokens in zip(rows["tokens"], rows["other_tokens"], strict=True)]
    return rows.assign(flip=[np.nan if flip is None else float(flip) for flip in flips])


def rows_of(evidence: Mapping[str, Evidence], table: str, dtype: str) -> DataFrame:
    """Returns the rows of another table of numerics in a type of numbers, with the context of each;
    :class:`NoEvidenceError` where there are none."""
    given = evidence[WALKED.name]
    rows = table_of(given.tables, table, "walked")
    rows = rows[rows["dtype"] == dtype]
    if rows.empty:
        raise NoEvidenceError(f"nothing was walked in {dtype}")
    return with_draws(rows, given.records)


def contexts_of(evidence: Mapping[str, Evidence], rows: DataFrame) -> Contexts:
    names = rows["draw_id"].to_numpy(dtype=str)
    return Contexts.of(names, evidence[WALKED.name].seed, WALKED.name)


def statistic_of(
    evidence: Mapping[str, Evidence], rows: DataFrame, values: Sequence[float] | FloatArray, note: str
) -> Statistic:
    """Averages a number of each row, and resamples their contexts."""
    contexts = contexts_of(evidence, rows)
    return Statistic(contexts.mean(np.asarray(values, dtype=np.float64)), contexts.count, note=note)


def flipped(evidence: Mapping[str, Evidence], dtype: str) -> DataFrame:
    """Returns the free-running pairs that differ, greedy; :class:`NoEvidenceError` where none does."""
    rows = pairs_of(evidence, FREE, dtype)
    parted = rows[rows["flip"].notna()]
    if parted.empty:
        raise NoEvidenceError(f"none of {len(rows)} pairs of answers differs: there is no flip")
    return parted
