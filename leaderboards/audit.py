"""The identity audit: two names for one method, and compression that changes nothing. (A peer's PyramidKV was SnapKV in
all of its 7,800 pairs, unnoticed.)"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from pandas import DataFrame, Series

from leaderboards.asked import Asked, asked_in
from leaderboards.row import CONTROLS, FULL

UNCHANGED_FROM = 0.5  # at this ratio and above, outputs that are all those of the full cache are worth a look
FEWEST_TOKENS = 8  # kept in a head, below which two methods may agree by chance: the last token is everybody's choice
KEY = ["task", "mode", "example_id", "question_id"]


@dataclass(frozen=True)
class Identical:
    """Two policies that do the same at a level, wherever both were run, though nothing says that they should."""

    one: str
    other: str
    asked: Asked
    records: int
    by: str

    def __str__(self) -> str:
        return (
            f"{self.one} and {self.other} are identical at {self.asked.where}: the same {self.by} "
            f"in all of {self.records} records"
        )


@dataclass(frozen=True)
class Unchanged:
    """A policy whose outputs at high ratios are all those of the full cache. ``records``: at each of them."""

    policy: str
    levels: tuple[Asked, ...]
    records: int

    def __str__(self) -> str:
        return (
            f"{self.policy} at {self.levels[0].kind} {', '.join(map(str, self.levels))} writes what the full cache "
            f"writes in all of {self.records} records: is it compressed at all?"
        )


def audit(
    records: DataFrame, declared: Mapping[str, Collection[str]] | None = None
) -> tuple[list[Identical], list[Unchanged]]:
    """What looks wrong in the records of a run. ``declared``: by policy, those that are the same by design.

    Policies are compared by the digest of what is read where both have one, and else by their outputs; these say
    nothing where they are all those of the full cache.
    """
    sound = records[records["status"] == "ok"]
    full = sound[sound["policy"] == FULL].set_index(KEY)["output_text"]
    identical: list[Identical] = []
    unchanged: dict[str, Unchanged] = {}
    compressed = sound[(sound["policy"] != FULL) & (sound["ratio"] > 0)]
    for asked, alike in compressed.groupby(asked_in(compressed)):
        groups = {str(policy): group.set_index(KEY) for policy, group in alike.groupby("policy", observed=True)}
        same = {name: _same(group["output_text"], full) for name, group in groups.items()}
        telling = {name: group[group["kept_tokens"] >= FEWEST_TOKENS] for name, group in groups.items()}
        for one, other in combinations(groups, 2):
            if declared and (other in declared.get(one, ()) or one in declared.get(other, ())):
                continue
            found = _identical(telling[one], telling[other], informative=not (same[one] and same[other]))
            if found:
                identical.append(Identical(one, other, asked, *found))
        for name in (name for name, is_same in same.items() if is_same and name not in CONTROLS):
            if alike["ratio"].mean() >= UNCHANGED_FROM:
                before = unchanged[name].levels if name in unchanged else ()
                unchanged[name] = Unchanged(name, (*before, asked), len(groups[name]))
    return identical, list(unchanged.values())


def _same(outputs: Series, full: Series) -> bool:
    """Whether all outputs that the full cache has an equal for are equal to it."""
    shared = outputs.index.intersection(full.index)
    return len(shared) > 0 and bool(np.array_equal(outputs.loc[shared].to_numpy(), full.loc[shared].to_numpy()))


def _identical(one: DataFrame, other: DataFrame, informative: bool) -> tuple[int, str] | None:
    """How many records they share, and what is the same in all of them."""
    shared = one.index.intersection(other.index)
    if len(shared) == 0:
        return None
    first, second = one.loc[shared], other.loc[shared]
    if first["cache_digest"].notna().all() and second["cache_digest"].notna().all():
        same = np.array_equal(first["cache_digest"].to_numpy(), second["cache_digest"].to_numpy())
        return (len(shared), "cache") if same else None
    same = informative and np.array_equal(first["output_text"].to_numpy(), second["output_text"].to_numpy())
    return (len(shared), "outputs") if same else None
