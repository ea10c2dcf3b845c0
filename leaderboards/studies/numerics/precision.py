"""Adds up what remedies recover and cost, and what the type of numbers changes about policies."""

from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.numerics.layers import estimate_of
from leaderboards.studies.numerics.pairs import CACHE, DTYPES, FORCED, finite_sums

POLICIES = "numerics_policies"
REMEDIES = ("recomputed", "float32 attention", "float32 cache")
ANSWER = ["task", "question_id", "policy", "level_kind", "level", "repeat"]


@dataclass(frozen=True)
class Remedy:
    """Holds what a remedy leaves of the divergence of both paths, over the same questions."""

    dtype: str
    remedy: str
    walks: int  # answers that were walked
    kl: float  # mean over steps, without it
    kl_remedied: float  # of both paths with it
    recovered: float | None  # 1 - KL with it / KL without; None where there is none to recover
    time: float  # that cache on takes with it, over the time without


@dataclass(frozen=True)
class Moved:
    """Holds what a policy at a level keeps and answers in another type of numbers."""

    task: str
    dtype: str
    policy: str
    level: float
    moved: Estimate | None  # share of the slots kept in the run's type that are not kept in this one
    same_tokens: Estimate  # share of answers
    f1: float | None  # mean in the run's type; None where nothing is judged
    f1_change: Estimate | None  # in this type less in the run's
    f1_rank: int | None  # by F1 among the policies at the level, in the run's type
    f1_rank_again: int | None  # in this one


def remedies_of(table: DataFrame) -> list[Remedy]:
    """Returns every remedy by dtype, beside cache on and cache off behind the same questions."""
    forced = table[(table["regime"] == FORCED) & (table["sampling"] == "greedy")]
    found = []
    for dtype in DTYPES:
        of_dtype = forced[forced["dtype"] == dtype].set_index(["task", "question_id"])
        plain = of_dtype[of_dtype["pair"] == CACHE]
        for remedy in REMEDIES:
            rows = of_dtype[of_dtype["pair"] == remedy]
            if len(rows):
                found.append(_remedy(dtype, remedy, rows, plain.loc[rows.index]))
    return found


def _remedy(dtype: str, remedy: str, rows: DataFrame, plain: DataFrame) -> Remedy:
    with_it, without = (_mean_kl(one) for one in (rows, plain))
    recovered = 1 - with_it / without if without > 0 else None
    time = float(rows["path_seconds"].sum() / plain["path_seconds"].sum())
    return Remedy(dtype, remedy, len(rows), without, with_it, recovered, time)


def _mean_kl(rows: DataFrame) -> float:
    sums, counts = finite_sums(rows["kl"])
    return float(sums.sum() / counts.sum()) if counts.any() else float("nan")


def moved_of(table: DataFrame, records: DataFrame) -> list[Moved]:
    """Returns every policy at every level by task and dtype."""
    columns = [*ANSWER, "draw_id", "f1"]
    joined = table.merge(records[columns], on=ANSWER, suffixes=("", "_before"), validate="many_to_one")
    found = []
    for (task, dtype, level), rows in joined.groupby(["task", "dtype", "level"], observed=True):
        judged = rows[rows["f1"].notna()]
        ranks = [_ranks(judged, column) for column in ("f1_before", "f1")]
        for policy, of_policy in rows.groupby("policy", observed=True):
            places = (rank.get(str(policy)) for rank in ranks)
            found.append(_moved(str(task), str(dtype), str(policy), float(level), of_policy, *places))
    return sorted(found, key=lambda one: (one.task, DTYPES.index(one.dtype), one.level, one.policy))


def _ranks(rows: DataFrame, column: str) -> dict[str, int]:
    """Ranks policies by their mean, the highest first; equal ones share the better place."""
    means = rows.groupby("policy", observed=True)[column].mean().round(9)
    return {str(policy): int((means > mean).sum()) + 1 for policy, mean in means.items()}


def _moved(
    task: str, dtype: str, policy: str, level: float, rows: DataFrame, rank: int | None, rank_again: int | None
) -> Moved:
    masked, judged = rows[rows["moved"].notna()], rows[rows["f1"].notna()]
    difference = (judged["f1"] - judged["f1_before"]).to_numpy(dtype=np.float64)
    return Moved(
        task,
        dtype,
        policy,
        level,
        _estimate(masked["moved"].to_numpy(dtype=np.float64), masked),
        estimate_of(rows["same_tokens"].to_numpy(dtype=np.float64), rows["draw_id"].tolist()),
        float(judged["f1_before"].mean()) if len(judged) else None,
        _estimate(difference, judged),
        rank,
        rank_again,
    )


def _estimate(values: FloatArray, rows: DataFrame) -> Estimate | None:
    return estimate_of(values, rows["draw_id"].tolist()) if len(values) else None
