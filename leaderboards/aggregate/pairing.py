"""Decides at which levels two policies can be compared, and counts the bytes that each of them holds there.

A policy without levels, such as int4, or with one level of another kind than its opponent's, is the same whatever the
opponent is asked for: it is compared with each level of the opponent.
"""

from collections.abc import Iterable, Mapping

from pandas import DataFrame

from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

HELD = "held"  # the column of :func:`with_held`
NO_LEVEL = "no level"


def shared_levels(one: Iterable[Level], other: Iterable[Level]) -> list[Level]:
    """Returns the levels of the cells in which two policies meet, of those at which each was run; none where both have
    several levels of different kinds, or no equal one of the same kind.

    >>> ratios = [Level("ratio", 0.5), Level("ratio", 0.9)]
    >>> shared_levels([UNTREATED], ratios) == ratios
    True
    >>> [level.where for level in shared_levels([Level("rate", 0.1)], ratios)]
    ['ratio 0.5', 'ratio 0.9']
    >>> shared_levels([Level("ratio", 0.3)], ratios)
    []
    """
    ones, others = sorted(set(one)), sorted(set(other))
    if ones == [UNTREATED]:
        return others
    if others == [UNTREATED]:
        return ones
    if {level.kind for level in ones} & {level.kind for level in others}:
        return [level for level in ones if level in others]
    if len(others) == 1:
        return ones
    return others if len(ones) == 1 else []


def level_of_side(cell: Level, run_at: Iterable[Level]) -> Level:
    """Returns the level at which a policy was run whose answers stand in a cell: the cell's, or its only one."""
    levels = list(run_at)
    return cell if cell in levels else levels[0]


def level_words(level: Level) -> str:
    return NO_LEVEL if level == UNTREATED else level.where


def levels_by_policy(records: DataFrame) -> Mapping[str, frozenset[Level]]:
    """Returns the levels of the records of each policy, failed ones among them."""
    levels: dict[str, set[Level]] = {}
    for policy, kind, value in records[["policy", "level_kind", "level"]].drop_duplicates().itertuples(index=False):
        levels.setdefault(str(policy), set()).add(Level(str(kind), float(value)))
    return {policy: frozenset(of_policy) for policy, of_policy in levels.items()}


def with_held(records: DataFrame) -> DataFrame:
    """Adds the bytes that each answer's cache holds, in percent of the full cache of the same question; NaN where there
    is none. Records that have the column are left as they are: those of two runs have it from their own full caches."""
    if HELD in records:
        return records
    question = ["task", "mode", "example_id", "question_id"]
    full = records[records["policy"] == FULL].drop_duplicates(question).set_index(question)["kv_bytes"]
    bytes_of_full = full.reindex(records.set_index(question).index).to_numpy(dtype=float, na_value=float("nan"))
    held = records["kv_bytes"].to_numpy(dtype=float, na_value=float("nan"))
    return records.assign(**{HELD: 100 * held / bytes_of_full})
