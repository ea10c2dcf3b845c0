"""The study of numerics: what is averaged over which steps, what the alarm names, and what its page tells."""

import math
from typing import Any

import pytest
from pandas import DataFrame

from leaderboards.studies.declaration import StudyInput
from leaderboards.studies.numerics.alarm import cause_of
from leaderboards.studies.numerics.pairs import TABLE, flip_of, forced_of, free_of, mistakes_of, scatter_of, with_draws
from leaderboards.studies.numerics.study import STUDY
from leaderboards.studies.page import build_study
from tests.support.records.synthetic_records import frame, record

NAN = math.nan
BEFORE, AFTER = 1e-4, 11.0  # nats of a step before a flip and behind it: two texts are as far apart as any


def row(question: str, kl: list[float], **more: Any) -> dict[str, Any]:
    count = len(kl)
    cell = {"task": "base", "question_id": question, "policy": "full", "level_kind": "ratio", "level": 0.0, "repeat": 0}
    names = {"dtype": "float16", "sampling": "greedy", "draw": 0, "regime": "teacher-forced", "pair": "cache"}
    tokens = {"tokens": [*range(count)], "other_tokens": [*range(count)], "right": None, "other_right": None}
    steps = dict.fromkeys(("kl", "js", "largest", "mean_difference"), kl)
    margins = {name: [1.0] * count for name in ("margin", "other_margin")} | {"same_top": [True] * count}
    shifted = {"kl_earlier": [NAN, *[9.0] * (count - 1)], "kl_later": [*[8.0] * (count - 1), NAN]}
    seconds = {"path_seconds": 1.0, "other_path_seconds": 2.0}
    return cell | seconds | names | tokens | steps | margins | shifted | more


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
    row("a", [2e-4, 2e-4, 2e-4], pair="batch"),
    row("b", [5e-4], pair="batch"),
    FLIPPED,
    SAME,
)


def test_the_first_token_that_differs_is_the_flip_also_where_one_answer_has_ended() -> None:
    assert flip_of([1, 2, 3], [1, 2, 3]) is None
    assert flip_of([1, 2, 3], [1, 5, 3]) == 1
    assert flip_of([1, 2], [1, 2, 3]) == 2


def test_every_step_weighs_the_same() -> None:
    cache, batch = forced_of(table_of(*ROWS))
    assert (cache.paths, cache.steps, batch.paths, batch.steps) == ("cache", 4, "batch", 4)
    assert cache.kl is not None
    assert cache.kl.mean == pytest.approx(2.5e-4)
    assert cache.kl_largest == pytest.approx(4e-4)


def test_a_difference_no_larger_than_a_null_row_says_nothing() -> None:
    assert forced_of(table_of(*ROWS))[0].above_null is False
    assert forced_of(table_of(*ROWS[:2]))[0].above_null is True
    assert "no: it says nothing" in build_study(STUDY, given(*ROWS))[0]


def test_null_rows_are_held_against_the_same_questions() -> None:
    """Null rows are of some questions alone: b, whose paths are far apart, has none."""
    rows = (row("a", [1e-4]), row("b", [1e-2]), row("a", [2e-4], pair="batch"))
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
    assert (free.always, free.sometimes, free.never) == (1, 0, 1)
    assert free.completions == 1.5
    assert (free.right_on, free.right_off, free.only_on, free.only_off) == (1.0, 0.5, 1, 0)


def test_p_values_are_corrected_over_all_rows_of_the_page() -> None:
    flipped = [FLIPPED | {"question_id": f"q{number}"} for number in range(8)]
    other = [one | {"dtype": "bfloat16", "other_right": True} for one in flipped]
    by_dtype = {one.dtype: one for one in free_of(table_of(*flipped, *other))}
    half = by_dtype["float16"]
    assert half.p_mcnemar == pytest.approx(2 / 2**8)
    assert half.p_bonferroni == pytest.approx(4 / 2**8)
    assert half.p_bh == pytest.approx(4 / 2**8)
    assert by_dtype["bfloat16"].p_mcnemar == 1.0


def test_some_draws_that_differ_are_sometimes() -> None:
    drawn = [
        one | {"sampling": "top_p", "draw": draw} for draw, one in enumerate((FLIPPED, SAME | {"question_id": "a"}))
    ]
    (free,) = free_of(table_of(*drawn))
    assert (free.always, free.sometimes, free.never, free.completions) == (0, 1, 0, 3.0)


def test_accuracy_and_length_scatter_over_paths_and_dtypes() -> None:
    """Of four configurations one has half of the answers right and the others all; one answer has a token more."""
    longer = {"dtype": "bfloat16", "other_tokens": [*SAME["tokens"], 5]}
    half = [one | {"dtype": "bfloat16", "other_right": True} for one in (FLIPPED, SAME | longer)]
    (one,) = scatter_of(table_of(FLIPPED, SAME, *half))
    assert (one.task, one.configurations) == ("base", 4)
    assert one.std_accuracy == pytest.approx(0.25)  # of 1, 0.5, 1, 1
    assert one.std_length == pytest.approx((0 + 0.5) / 2)  # of lengths 4, 4, 4, 4 and 2, 2, 2, 3
    (free,) = free_of(table_of(*ROWS))
    assert (free.length_on, free.length_off) == (3.0, 3.0)


def test_the_likely_mistakes_give_nats_where_rounding_gives_none() -> None:
    """Shifted by one, or pooled behind the flip, the same logits give the order of magnitude that the text reports."""
    (one,) = mistakes_of(table_of(*ROWS))
    assert one.aligned == pytest.approx(2.5e-4)
    assert (one.earlier, one.later) == (9.0, 8.0)
    assert one.pooled == pytest.approx((4 * BEFORE + 2 * AFTER) / 6)
    assert mistakes_of(table_of(*ROWS[:2], SAME))[0].pooled is None


@pytest.mark.parametrize(
    ("kl", "earlier", "later", "cause"),
    [
        ([0.0, 0.0], [NAN, 9.0], [9.0, NAN], "identical"),
        ([1e-6, 1e-4], [NAN, 9.0], [8.0, NAN], "rounding"),
        ([9.0, 8.0], [NAN, 1e-6], [9.0, NAN], "misaligned"),
        ([9.0, 8.0], [NAN, 7.0], [1e-6, NAN], "misaligned"),
        ([1.0, 1.0], [NAN, 9.0], [8.0, NAN], "unexplained"),
        ([1e-6], [NAN], [NAN], "unexplained"),
    ],
)
def test_the_alarm_tells_a_shift_by_one_from_rounding(
    kl: list[float], earlier: list[float], later: list[float], cause: str
) -> None:
    assert cause_of(kl, earlier, later) == cause


def test_a_misaligned_run_is_named_at_the_top_of_its_page() -> None:
    shifted = row("a", [9.0, 9.0, 9.0], kl_later=[1e-6, 1e-6, NAN])
    page, content = build_study(STUDY, given(shifted, SAME))
    assert dict(content.facts)["Misaligned"] == "float16, base: the paths were given other tokens or positions"
    assert "nats in float16, base: misaligned" in page


def test_runs_without_the_table_have_no_such_page() -> None:
    assert STUDY.takes(given(*ROWS))
    assert not STUDY.takes(StudyInput("toy", given(*ROWS).records, [{"status": "complete"}]))
