"""Reads the tables of numerics: the pairs of two paths, the contexts that they are about, and the
steps that they share."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from leaderboards.statistics.bootstrap import FloatArray

TABLE = "numerics_pairs"  # of a store (kvbench.studies.numerics)
CACHE, NULL = "cache", "chunks"
FORCED, FREE = "teacher-forced", "free-running"
DTYPES = ("float64", "float32", "bfloat16", "float16")
IN_16_BITS = ("bfloat16", "float16")
DRIFT = "numerics_drift"
THIRDS = 3
ALL = -1  # stands for all layers


def with_draws(table: DataFrame, records: DataFrame) -> DataFrame:
    """Adds to each row the context that it is about, which is resampled as a whole."""
    draws = records[["task", "question_id", "draw_id"]].drop_duplicates()
    return table.merge(draws, on=["task", "question_id"], validate="many_to_one")


def numbers_by_step(rows: DataFrame, column: str) -> list[FloatArray]:
    """Returns the numbers by step of each row, arrays of shape (steps,); none where an earlier
    version did not measure them."""
    lists = []
    for values in rows[column]:
        if values is None:
            values = ()
        lists.append(np.asarray(values, dtype=np.float64))
    return lists


def padded(lists: Sequence[FloatArray]) -> FloatArray:
    """Puts numbers by step into one array of shape (rows, steps); NaN where a row has ended."""
    steps = max(map(len, lists), default=0)
    values = np.full((len(lists), steps), np.nan)
    for row, by_step in enumerate(lists):
        values[row, : len(by_step)] = by_step
    return values


def joined(lists: Iterable[Sequence[float] | FloatArray]) -> FloatArray:
    """Puts the numbers of all rows one behind the other: shape (rows · steps,)."""
    arrays = [np.asarray(by_step, dtype=np.float64) for by_step in lists]
    # np.concatenate takes no empty list.
    return np.concatenate([np.empty(0), *arrays])


def finite_sums(lists: Iterable[Sequence[float] | FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Adds up the finite numbers of each row, and counts them: two arrays of shape (rows,)."""
    sums, counts = [], []
    for by_step in lists:
        values = np.asarray(by_step, dtype=np.float64)
        finite = values[np.isfinite(values)]
        sums.append(finite.sum())
        counts.append(float(len(finite)))
    return np.array(sums), np.array(counts)


def free_pairs(table: DataFrame) -> DataFrame:
    return table[(table["regime"] == FREE) & (table["pair"] == CACHE)]


def drop_overflows(pairs: DataFrame) -> DataFrame:
    """Leaves out answers that overflow: behind a logit that is not finite, no token was chosen."""
    return pairs[[bool(np.isfinite(kl).all()) for kl in pairs["kl"]]]


def find_flip(tokens: Sequence[int], other: Sequence[int]) -> int | None:
    """Returns the first step at which two answers differ, also where one has ended (``Div_Index``);
    None where they are equal.

    >>> find_flip([4, 5, 6], [4, 7]), find_flip([4, 5], [4]), find_flip([4], [4])
    (1, 1, None)
    """
    shorter = min(len(tokens), len(other))
    for step in range(shorter):
        if tokens[step] != other[step]:
            return step
    return None if len(tokens) == len(other) else shorter


def thirds(flips: FloatArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tells which flips are early, up to their 33rd percentile, and which are late, from the 67th
    on; all of shape (flips,). Flips at few different steps may be both."""
    first, last = np.quantile(flips, (1 / THIRDS, 1 - 1 / THIRDS))
    return flips <= first, flips >= last


def finite_mean(values: FloatArray) -> float:
    """Averages the finite numbers of an array of any shape; NaN where there is none."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def sorted_groups(rows: DataFrame, *columns: str) -> Iterator[tuple[tuple[str, ...], DataFrame]]:
    """Groups rows by task, and by dtype in their own order."""
    groups: dict[tuple[str, ...], DataFrame] = {}
    for key, group in rows.groupby(list(columns), sort=False):
        groups[tuple(map(str, key))] = group
    yield from sorted(groups.items(), key=_task_and_dtype)


def _task_and_dtype(group: tuple[tuple[str, ...], DataFrame]) -> tuple[str, int]:
    task, dtype, *_ = group[0]
    return task, DTYPES.index(dtype)
