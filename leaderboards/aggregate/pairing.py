"""Reads from records at which levels policies were run, and which share of the full cache's bytes
they hold."""

from collections.abc import Mapping

from pandas import DataFrame

from policies.declaration.levels import Level
from policies.declaration.names import FULL

HELD = "held"  # the column of :func:`with_held`


def levels_by_policy(records: DataFrame) -> Mapping[str, frozenset[Level]]:
    """Returns the levels of the records of each policy, failed ones among them."""
    levels: dict[str, set[Level]] = {}
    distinct = records[["policy", "level_kind", "level"]].drop_duplicates()
    for policy, kind, value in distinct.itertuples(index=False):
        levels.setdefault(str(policy), set()).add(Level(str(kind), float(value)))
    return {policy: frozenset(of_policy) for policy, of_policy in levels.items()}


def with_held(records: DataFrame) -> DataFrame:
    """Adds the bytes that each answer's cache holds, in percent of the full cache of the same
    question; NaN where there is none. Records that have the column are left as they are: those of
    two runs have it from their own full caches."""
    if HELD in records:
        return records
    question = ["task", "mode", "example_id", "question_id"]
    of_full = records[records["policy"] == FULL].drop_duplicates(question).set_index(question)
    questions = records.set_index(question).index
    full_bytes = of_full["kv_bytes"].reindex(questions)
    # Missing counts become NaN, and so does what is divided by them.
    whole = full_bytes.to_numpy(dtype=float, na_value=float("nan"))
    held = records["kv_bytes"].to_numpy(dtype=float, na_value=float("nan"))
    return records.assign(**{HELD: 100 * held / whole})
