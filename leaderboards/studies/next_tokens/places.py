"""Averages what the table of next tokens holds, by policy, level and place in the continuation."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.statistics.bootstrap import resampled_means
from leaderboards.statistics.levels import with_levels
from leaderboards.statistics.resampling import Estimate
from policies.declaration.levels import Level

TABLE = "next_tokens"  # of a store (kvbench.store.next_tokens)


@dataclass(frozen=True)
class PlaceResult:
    """Holds what a policy at a level comes to in one part of the continuations of a task."""

    task: str
    policy: str
    level: Level
    first_token: int  # from 0 on
    tokens: int  # of all texts
    accuracy: Estimate
    nats: Estimate | None  # None where no text has a number

    @property
    def middle(self) -> float:
        """Returns the place halfway to where the part ends, counted from 1."""
        return 1.5 * self.first_token + 0.5 if self.first_token else 1.0


def part_name(first_token: int) -> str:
    """Names a part of a continuation.

    >>> [part_name(first) for first in (0, 1, 2, 4)]
    ['token 1', 'token 2', 'tokens 3-4', 'tokens 5-8']
    """
    return f"token {first_token + 1}" if first_token < 2 else f"tokens {first_token + 1}-{2 * first_token}"


def parts_of(table: DataFrame, records: DataFrame) -> list[PlaceResult]:
    """Returns the parts in the order of tasks, policies, levels and places. ``records``: of the same runs, which tell
    the context of each question."""
    draws = records[["task", "question_id", "draw_id"]].drop_duplicates()
    joined = with_levels(table.merge(draws, on=["task", "question_id"], validate="many_to_one"))
    return list(_parts(joined.sort_values(["question_id", "repeat"], kind="stable")))


def _parts(joined: DataFrame) -> Iterator[PlaceResult]:
    by = ["task", "policy", "level", "first_token"]
    for (task, policy, level, first), group in joined.groupby(by, observed=True):
        accuracy, nats = (_estimate(group, column) for column in ("accuracy", "nats"))
        assert accuracy is not None
        yield PlaceResult(str(task), str(policy), level, int(first), int(group["tokens"].sum()), accuracy, nats)


def _estimate(group: DataFrame, column: str) -> Estimate | None:
    """Averages a column over tokens, and resamples contexts."""
    known = group[group[column].notna()]
    if known.empty:
        return None
    weights = known["tokens"].to_numpy(dtype=np.float64)
    totals = known[column].to_numpy(dtype=np.float64) * weights
    drawn = resampled_means(totals, known["draw_id"].to_numpy(dtype=str), 0, weights=weights)
    return Estimate.of(float(totals.sum() / weights.sum()), drawn, int(weights.sum()))
