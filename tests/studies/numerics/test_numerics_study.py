"""The study of numerics, on tables where the truth is known: what is averaged over which steps, and
what its page tells."""

import math
from typing import Any

import pytest
from pandas import DataFrame

from leaderboards.studies.declaration import StudyInput, build_study
from leaderboards.studies.numerics.content import measure_drift, measure_forced, measure_free
from leaderboards.studies.numerics.study import STUDY
from leaderboards.studies.numerics.walked import TABLE, find_flip, with_draws
from tests.support.records.synthetic_records import frame, record

NAN = math.nan
# Nats of a step before a flip and behind it: two texts are as far apart as any.
BEFORE, AFTER = (1e-4, 11.0)


def walk_row(question: str, kl: list[float], **more: Any) -> dict[str, Any]:
    count = len(kl)
    cell = {
        "task": "base",
        "question_id": question,
        "policy": "full",
        "level_kind": "ratio",
        "level": 0.0,
        "repeat": 0,
    }
    names = {
        "dtype": "float16",
        "sampling": "greedy",
        "draw": 0,
        "regime": "teacher-forced",
        "pair": "cache",
    }
    tokens = {
        "tokens": [*range(count)],
        "other_tokens": [*range(count)],
        "right": None,
        "other_right": None,
    }
    steps = {"kl": kl, "js": kl, "largest": kl, "margin": [1.0] * count, "same_top": [True] * count}
    return cell | names | tokens | steps | more


def study_input(*rows: dict[str, Any]) -> StudyInput:
    names = dict.fromkeys(one["question_id"] for one in rows)
    records = [
        record(task="base", question_id=name, policy="full", example_id=name, draw_id=name)
        for name in names
    ]
    return StudyInput(
        "toy", frame(records), [{"status": "complete"}], {TABLE: DataFrame(list(rows))}
    )


def table_of(*rows: dict[str, Any]) -> DataFrame:
    one = study_input(*rows)
    return with_draws(one.tables[TABLE], one.records)


FREE = {"regime": "free-running", "right": True, "other_right": True}
FLIPPED = walk_row(
    "a",
    [BEFORE, BEFORE, AFTER, AFTER],
    **FREE | {"other_tokens": [0, 7, 8, 9], "other_right": False},
)
SAME = walk_row("b", [BEFORE, BEFORE], **FREE)
ROWS = (
    walk_row("a", [1e-4, 3e-4, 2e-4]),
    walk_row("b", [4e-4]),
    walk_row("a", [2e-4, 2e-4, 2e-4], pair="chunks"),
    walk_row("b", [5e-4], pair="chunks"),
    FLIPPED,
    SAME,
)


def test_the_first_token_that_differs_is_the_flip_also_where_one_answer_has_ended() -> None:
    assert find_flip([1, 2, 3], [1, 2, 3]) is None
    assert find_flip([1, 2, 3], [1, 5, 3]) == 1
    assert find_flip([1, 2], [1, 2, 3]) == 2


def test_every_step_weighs_the_same() -> None:
    cache, null = measure_forced(table_of(*ROWS))
    assert (cache.paths, cache.steps, null.paths, null.steps) == ("cache", 4, "chunks", 4)
    assert cache.kl is not None
    assert cache.kl.mean == pytest.approx(2.5e-4)
    assert cache.kl_largest == pytest.approx(4e-4)


def test_a_difference_no_larger_than_a_null_row_says_nothing() -> None:
    assert measure_forced(table_of(*ROWS))[0].above_null is False
    assert measure_forced(table_of(*ROWS[:2]))[0].above_null is True


def test_steps_that_are_not_finite_are_left_out_and_counted_out() -> None:
    overflowing = (
        walk_row("a", [NAN, 2e-4], same_top=[False, True]),
        walk_row("b", [NAN], same_top=[False]),
    )
    (one,) = measure_forced(table_of(*overflowing))
    assert (one.steps, one.overflow, one.same_top) == (1, 2, 1.0)
    (none,) = measure_forced(table_of(overflowing[1]))
    assert (none.steps, none.overflow, none.same_top) == (0, 1, None)
    assert one.kl is not None
    assert one.kl.mean == pytest.approx(2e-4)
    parts = build_study(STUDY, study_input(walk_row("a", [NAN]), walk_row("b", [NAN]), SAME))[
        1
    ].parts
    forced = next(part.listings[0] for part in parts if part.identifier == "forced")
    assert dict(zip(forced.columns, forced.rows[0], strict=True))["kl"] == "–"


def test_an_answer_that_overflows_is_no_answer_that_stays() -> None:
    sound, lost = walk_row("q0", [1e-3, 2e-3], **FREE), walk_row("q1", [1e-3, NAN], **FREE)
    (free,) = measure_free(table_of(sound, lost))
    assert free.pairs == 1
    facts = dict(build_study(STUDY, study_input(sound, lost))[1].facts)
    assert facts["Answers in float16 that overflow"] == "1 of 2, left out"


def test_figures_are_told_before_and_behind_the_flip() -> None:
    (free,) = measure_free(table_of(*ROWS))
    assert (free.pairs, free.differ.mean, free.first_flip) == (2, 0.5, 1.0)
    assert free.kl_before == pytest.approx(BEFORE)
    assert free.kl_after == pytest.approx(AFTER)
    assert (free.right_on, free.right_off) == (1.0, 0.5)


CONTEXTS = 12
ANSWER = {"task": "base", "policy": "full", "level_kind": "ratio", "level": 0.0, "repeat": 0}


def named(number: int, **more: Any) -> dict[str, Any]:
    return (
        ANSWER | {"question_id": f"q{number}", "draw_id": f"q{number}", "dtype": "float16"} | more
    )


def drifts(layers: int = 3, **more: Any) -> list[dict[str, Any]]:
    """Later layers drift more; 5 rows are the prompt's, 3 written."""
    rows = []
    for number in range(CONTEXTS):
        for layer in range(layers):
            steps = [0.0] + [
                0.001 * (layer + 1) * (1 + number / 100) * (1 + step / 10) for step in range(3)
            ]
            positions = [1e-6] * 5 + [1e-3 * (layer + 1)] * 3
            lists: dict[str, Any] = {"keys": positions, "values": positions, "hidden": steps}
            # As a run of before has them.
            lists |= dict.fromkeys(("hidden_l2", "hidden_cosine", "attention_kl"))
            rows.append(named(number, layer=layer) | lists | more)
    return rows


def test_drift_leaves_out_the_step_at_which_both_read_the_prompt() -> None:
    first, second, _ = measure_drift(DataFrame(drifts()))
    assert (first.keys_prompt, first.keys_answer) == pytest.approx((1e-6, 1e-3))
    assert second.hidden.mean == pytest.approx(2 * first.hidden.mean)
    assert "How the error enters" in page_of(drift=DataFrame(drifts()))


def test_drift_leaves_out_answers_that_overflow() -> None:
    assert measure_drift(DataFrame(drifts(hidden=[0.0, NAN]))) == []


def test_answers_of_one_token_have_no_drift() -> None:
    assert measure_drift(DataFrame(drifts(hidden=[0.0]))) == []


def page_of(**tables: DataFrame) -> str:
    one = study_input(walk_row("q0", [1e-3, 2e-3]), walk_row("q0", [1e-3, 2e-3], **FREE))
    names = {f"numerics_{name}": table.drop(columns="draw_id") for name, table in tables.items()}
    records = frame(
        [record(task="base", question_id=f"q{n}", draw_id=f"q{n}") for n in range(CONTEXTS)]
    )
    return build_study(STUDY, StudyInput("toy", records, one.runs, {**one.tables, **names}))[0]
