"""The study of numerics, on tables where the truth is known: what is averaged over which steps, and what its page
tells."""

import math
from typing import Any

import pytest
from pandas import DataFrame

from leaderboards.studies.declaration import StudyInput, build_study
from leaderboards.studies.numerics.pairs import (
    TABLE,
    flip_of,
    forced_of,
    free_of,
    with_draws,
)
from leaderboards.studies.numerics.study import STUDY
from tests.support.records.synthetic_records import frame, record

NAN = math.nan
BEFORE, AFTER = 1e-4, 11.0  # nats of a step before a flip and behind it: two texts are as far apart as any


def row(question: str, kl: list[float], **more: Any) -> dict[str, Any]:
    count = len(kl)
    cell = {"task": "base", "question_id": question, "policy": "full", "level_kind": "ratio", "level": 0.0, "repeat": 0}
    names = {"dtype": "float16", "sampling": "greedy", "draw": 0, "regime": "teacher-forced", "pair": "cache"}
    tokens = {"tokens": [*range(count)], "other_tokens": [*range(count)], "right": None, "other_right": None}
    steps = {"kl": kl, "largest": kl, "margin": [1.0] * count, "same_top": [True] * count}
    return cell | names | tokens | steps | more


def given(*rows: dict[str, Any]) -> StudyInput:
    names = dict.fromkeys(one["question_id"] for one in rows)
    records = [record(task="base", question_id=name, policy="full", example_id=name, draw_id=name) for name in names]
    return StudyInput("toy", frame(records), [{"status": "complete"}], {TABLE: DataFrame(list(rows))})


def table_of(*rows: dict[str, Any]) -> DataFrame:
    one = given(*rows)
    return with_draws(one.tables[TABLE], one.records)


FREE = {"regime": "free-running", "right": True, "other_right": True}
FLIPPED = row("a", [BEFORE, BEFORE, AFTER, AFTER], **FREE | {"other_tokens": [0, 7, 8, 9], "other_right": False})
SAME = row("b", [BEFORE, BEFORE], **FREE)
ROWS = (
    row("a", [1e-4, 3e-4, 2e-4]),
    row("b", [4e-4]),
    row("a", [2e-4, 2e-4, 2e-4], pair="chunks"),
    row("b", [5e-4], pair="chunks"),
    FLIPPED,
    SAME,
)


def test_the_first_token_that_differs_is_the_flip_also_where_one_answer_has_ended() -> None:
    assert flip_of([1, 2, 3], [1, 2, 3]) is None
    assert flip_of([1, 2, 3], [1, 5, 3]) == 1
    assert flip_of([1, 2], [1, 2, 3]) == 2


def test_every_step_weighs_the_same() -> None:
    cache, null = forced_of(table_of(*ROWS))
    assert (cache.paths, cache.steps, null.paths, null.steps) == ("cache", 4, "chunks", 4)
    assert cache.kl is not None
    assert cache.kl.mean == pytest.approx(2.5e-4)
    assert cache.kl_largest == pytest.approx(4e-4)


def test_a_difference_no_larger_than_a_null_row_says_nothing() -> None:
    assert forced_of(table_of(*ROWS))[0].above_null is False
    assert forced_of(table_of(*ROWS[:2]))[0].above_null is True
    assert "no: it says nothing" in build_study(STUDY, given(*ROWS))[0]


def test_null_rows_are_held_against_the_same_questions() -> None:
    """Null rows are of some questions alone: b, whose paths are far apart, has none."""
    rows = (row("a", [1e-4]), row("b", [1e-2]), row("a", [2e-4], pair="chunks"))
    assert forced_of(table_of(*rows))[0].above_null is False


def test_steps_that_are_not_finite_are_left_out_and_counted_out() -> None:
    (one,) = forced_of(table_of(row("a", [NAN, 2e-4]), row("b", [NAN])))
    assert one.steps == 1
    assert one.kl is not None
    assert one.kl.mean == pytest.approx(2e-4)
    assert "not finite" in build_study(STUDY, given(row("a", [NAN]), row("b", [NAN]), SAME))[0]


def test_figures_are_told_before_and_behind_the_flip() -> None:
    (free,) = free_of(table_of(*ROWS))
    assert (free.pairs, free.differ.mean, free.first_flip) == (2, 0.5, 1.0)
    assert free.kl_before == pytest.approx(BEFORE)
    assert free.kl_after == pytest.approx(AFTER)
    assert (free.right_on, free.right_off) == (1.0, 0.5)


def test_runs_without_the_table_have_no_such_page() -> None:
    assert STUDY.takes(given(*ROWS))
    assert not STUDY.takes(StudyInput("toy", given(*ROWS).records, [{"status": "complete"}]))
