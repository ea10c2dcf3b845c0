"""Two policies on the same questions: the difference, its interval, and whether it is more than chance.

Questions about one context are not independent, so contexts are resampled. Right against wrong is McNemar's exact test
on the questions that the two answer differently (Q. McNemar, 1947), corrected over all cells that are compared by
Holm's method (S. Holm, 1979).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from leaderboards.bootstrap import percentile_interval, resampled_means
from leaderboards.errors import LeaderboardError

Verdict = Literal["better", "worse", "tied"]
ALPHA = 0.05
KEY = ["task", "mode", "ratio", "example_id", "question_id"]
RIGHT = 100.0  # exact match, in percent


@dataclass(frozen=True)
class Difference:
    """The mean difference of a measure, and its 95 % interval; None from a single context."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Duel:
    """One policy against another at a task and ratio.

    ``f1`` in percent and ``hallucination`` in [-1, 1]: this one minus the other. ``only_one``, ``only_other``:
    questions that just one of them answers exactly. ``p``: of McNemar's test, corrected over the family.
    """

    policy: str
    other: str
    task: str
    ratio: float
    questions: int
    contexts: int
    f1: Difference
    hallucination: Difference
    only_one: int
    only_other: int
    p: float

    @property
    def verdict(self) -> Verdict:
        """Better or worse where the interval of F1 leaves out 0 and the corrected test agrees; else tied."""
        if self.f1.low is None or self.f1.high is None or self.p >= ALPHA or self.f1.low <= 0 <= self.f1.high:
            return "tied"
        return "better" if self.f1.mean > 0 else "worse"


def duels(records: DataFrame, policy: str, others: Sequence[str], seed: int = 0) -> list[Duel]:
    """The policy against each of the others, at every task and ratio that both have in full."""
    mine = _answered(records, policy)
    found = []
    for other in others:
        pairs = mine.join(_answered(records, other), how="inner", lsuffix="_one", rsuffix="_other")
        for (task, ratio), cell in pairs.groupby(level=["task", "ratio"], sort=False):
            found.append(_duel(policy, other, str(task), float(ratio), cell, seed))
    if not found:
        raise LeaderboardError(f"{policy} and {', '.join(others)} have no cell in common that is complete")
    corrected = multipletests([duel.p for duel in found], ALPHA, method="holm")[1]
    return [replace(duel, p=float(p)) for duel, p in zip(found, corrected, strict=True)]


def _answered(records: DataFrame, policy: str) -> DataFrame:
    """F1, EM and hallucination of a policy by question, without cells in which anything failed."""
    own = records[records["policy"] == policy]
    failed = own[own["status"] != "ok"].groupby(["task", "mode", "ratio"]).size().index
    own = own.set_index(KEY)[["status", "f1", "em", "hallucinated"]]
    broken = own.index.droplevel(["example_id", "question_id"]).isin(failed)
    return own[~broken].drop(columns="status")


def _duel(policy: str, other: str, task: str, ratio: float, cell: DataFrame, seed: int) -> Duel:
    clusters = cell.index.get_level_values("example_id").to_numpy(dtype=np.str_)
    one, another = (cell[f"em_{side}"].to_numpy(dtype=float) >= RIGHT for side in ("one", "other"))
    table = [[int(np.sum(a & b)) for b in (another, ~another)] for a in (one, ~one)]
    return Duel(
        policy=policy,
        other=other,
        task=task,
        ratio=ratio,
        questions=len(cell),
        contexts=len(set(clusters)),
        f1=_difference(cell, "f1", clusters, seed),
        hallucination=_difference(cell, "hallucinated", clusters, seed),
        only_one=table[0][1],
        only_other=table[1][0],
        p=float(mcnemar(table, exact=True).pvalue),
    )


def _difference(cell: DataFrame, column: str, clusters: NDArray[np.str_], seed: int) -> Difference:
    """NaN where a question has no such value, as an attack has no hallucination: it is left out."""
    one, other = (cell[f"{column}_{side}"].to_numpy(dtype=np.float64, na_value=np.nan) for side in ("one", "other"))
    values = one - other
    known = values[~np.isnan(values)]
    means = resampled_means(values, clusters, seed)
    low, high = percentile_interval(means) if means is not None else (None, None)
    return Difference(float(known.mean()) if len(known) else 0.0, low, high)
