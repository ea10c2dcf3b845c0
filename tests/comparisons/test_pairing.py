"""What has one level meets each level of another policy, on the same questions, with the bytes of
both: by hand."""

import pandas as pd
import pytest

from leaderboards.aggregate.duels import duels
from leaderboards.aggregate.outcomes import held_sentence, join_outcomes
from leaderboards.aggregate.pairing import with_held
from leaderboards.aggregate.pooled import pool, pool_levels
from leaderboards.errors import LeaderboardError
from policies import UNTREATED, Level
from tests.support.records.synthetic_records import record
from tests.support.wording import assert_says

CONTEXTS = 8
HALF, MOST, RATE, HIGH_RATE = (
    Level("ratio", 0.5),
    Level("ratio", 0.9),
    Level("rate", 0.1),
    Level("rate", 0.5),
)
# By policy and level, how many of eight contexts are right, and the bytes held of 1000.
SCORES = {
    ("full", UNTREATED): (8, 1000),
    ("int4", UNTREATED): (7, 280),
    ("int8", UNTREATED): (8, 530),
    ("snapkv", HALF): (6, 500),
    ("snapkv", MOST): (1, 100),
    ("zeros", RATE): (4, 1000),
    ("zeros", HIGH_RATE): (0, 1000),
}


def paired_records(*cells: tuple[str, Level]) -> pd.DataFrame:
    """The records of some policies at some levels, and of the full cache."""
    rows = []
    for name, level in [("full", UNTREATED), *cells]:
        right, held = SCORES[name, level]
        for place in range(CONTEXTS):
            score = 100.0 if place < right else 0.0
            here = {
                "policy": name,
                "level_kind": level.kind,
                "level": level.value,
                "kv_bytes": held,
            }
            rows.append(
                record(**here, example_id=f"base-{place}", f1=score, hallucinated=score == 0)
            )
    return pd.DataFrame(rows)


def met(one: str, other: str, *cells: tuple[str, Level]) -> list[tuple[str, str, str, float]]:
    """The cells of a comparison: its level, the level of either, and the difference, which is
    eighths of 100 points."""
    rows = []
    for duel in duels(paired_records(*cells), one, [other]):
        mine, theirs = duel.run_at
        rows.append(
            (duel.level.where, mine.where, theirs.where, round(duel.lead.difference.mean, 6))
        )
    return rows


def test_what_has_no_level_meets_each_level_of_the_other_from_either_side() -> None:
    cells = (("int4", UNTREATED), ("snapkv", HALF), ("snapkv", MOST))
    assert met("snapkv", "int4", *cells) == [
        ("ratio 0.5", "ratio 0.5", "ratio 0", -12.5),  # 6 of 8 against 7 of 8
        ("ratio 0.9", "ratio 0.9", "ratio 0", -75),  # 1 of 8 against 7
    ]
    assert met("int4", "snapkv", *cells) == [
        ("ratio 0.5", "ratio 0", "ratio 0.5", 12.5),
        ("ratio 0.9", "ratio 0", "ratio 0.9", 75),
    ]


def test_one_level_of_another_kind_meets_each_level_too_and_two_that_have_one_meet_once() -> None:
    cells = (("zeros", RATE), ("snapkv", HALF), ("snapkv", MOST))
    assert [where for where, *_ in met("zeros", "snapkv", *cells)] == ["ratio 0.5", "ratio 0.9"]
    assert met("snapkv", "zeros", ("zeros", RATE), ("snapkv", HALF)) == [
        ("ratio 0.5", "ratio 0.5", "rate 0.1", 25)
    ]
    assert met("int4", "int8", ("int4", UNTREATED), ("int8", UNTREATED)) == [
        ("ratio 0", "ratio 0", "ratio 0", -12.5)
    ]


def test_levels_of_two_kinds_do_not_meet_and_a_third_policy_brings_them_no_cell() -> None:
    several = (("zeros", RATE), ("zeros", HIGH_RATE), ("snapkv", HALF), ("snapkv", MOST))
    with pytest.raises(LeaderboardError, match="no cell in common"):
        duels(paired_records(*several), "zeros", ["snapkv"])
    found = duels(paired_records(*several, ("int4", UNTREATED)), "int4", ["snapkv", "zeros"])
    assert [(duel.other, duel.level.where) for duel in found] == [
        ("snapkv", "ratio 0.5"),
        ("snapkv", "ratio 0.9"),
        ("zeros", "rate 0.1"),
        ("zeros", "rate 0.5"),
    ]


def test_the_mean_of_tasks_has_a_row_for_each_level_with_the_bytes_of_both_and_no_area() -> None:
    cells = paired_records(("int4", UNTREATED), ("snapkv", HALF), ("snapkv", MOST))
    rows = pool_levels(cells, "snapkv", ["int4"])
    assert [(row.level, row.run_at) for row in rows] == [
        (HALF, (HALF, UNTREATED)),
        (MOST, (MOST, UNTREATED)),
    ]
    assert [row.bytes_held for row in rows] == [pytest.approx((50, 28)), pytest.approx((10, 28))]
    assert [row.difference.mean for row in rows] == pytest.approx([-12.5, -75])
    areas = pool(cells, "snapkv", ["int4"])
    assert areas == [], (
        "int4 is a point: a curve from the full cache through it would be none of its own"
    )
    said = held_sentence(join_outcomes(rows, areas))
    assert_says(said, "snapkv 50 at ratio 0.5, 10 at ratio 0.9", "int4 28")


def test_bytes_are_of_the_full_cache_of_the_same_run() -> None:
    """A run in another dtype holds other bytes for the same share, of its own full cache."""
    today, yesterday = paired_records(("snapkv", HALF)), paired_records(("snapkv", HALF))
    yesterday = yesterday.assign(kv_bytes=yesterday["kv_bytes"] * 2)
    theirs = with_held(yesterday)
    theirs = theirs[theirs["policy"] == "snapkv"].assign(policy="snapkv of yesterday")
    (duel,) = duels(pd.concat([with_held(today), theirs]), "snapkv", ["snapkv of yesterday"])
    assert duel.bytes_held == pytest.approx((50, 50))
    assert duel.lead.difference.mean == 0
