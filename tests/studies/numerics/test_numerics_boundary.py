"""Flips and divergence: correlations, thirds and Welch's t by hand, and what too few contexts do
not tell."""

import math
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.studies.numerics.boundary import (
    ALL_STEPS,
    UP_TO_FLIP,
    Flips,
    build_content,
    find_flips,
    measure_boundaries,
    measure_boundary,
    pearson_test,
    spearman_test,
    split_thirds,
    welch_test,
)
from leaderboards.studies.numerics.definitions import BOUNDARY
from tests.support.wording import assert_says


def flips(steps: list[float], kl: list[float]) -> Flips:
    return Flips(np.array(steps, dtype=float), np.array(kl, dtype=float))


def pair(context: str, flip: int | None, kl: list[float], draw: int = 0) -> dict[str, Any]:
    tokens, others = [*range(len(kl))], [*range(len(kl))]
    if flip is not None:
        others[flip:] = [100 + number for number in others[flip:]]
    names = {
        "task": "base",
        "question_id": context,
        "draw_id": context,
        "dtype": "float16",
        "sampling": "greedy",
    }
    return names | {
        "draw": draw,
        "regime": "free-running",
        "pair": "cache",
        "tokens": tokens,
        "other_tokens": others,
        "kl": kl,
    }


def test_correlations_by_hand() -> None:
    """Deviations of the steps are -2.5 to 2.5, whose squares add up to 17.5; those of the KL add up
    to 75.5 with a mean of 3.5, and the products to -27.5."""
    one = flips([0, 1, 2, 3, 4, 5], [10, 5, 3, 2, 1, 0])
    kl = np.array([10, 5, 3, 2, 1, 0]) - 3.5
    expected = float((np.arange(6) - 2.5) @ kl) / math.sqrt(17.5 * float(kl @ kl))
    r, p = pearson_test(one)
    assert r == pytest.approx(expected)
    assert p is not None
    assert 0 < p < 0.05
    assert spearman_test(one)[0] == -1.0, "the order is turned round"


def test_too_few_contexts_or_equal_ones_have_no_correlation() -> None:
    assert pearson_test(flips([0, 1, 2, 3, 4], [5, 4, 3, 2, 1])) == (None, None)
    assert spearman_test(flips([2] * 6, [5, 4, 3, 2, 1, 0])) == (None, None)


def test_partial_correlations_leave_out_the_first_flips() -> None:
    """Six flips at 0 hide a line that falls behind them."""
    line = flips([0] * 6 + [*range(6, 14)], [0.0] * 6 + [float(20 - step) for step in range(6, 14)])
    found = measure_boundary("base", "float16", "greedy", ALL_STEPS, line)
    assert found.pearson is not None
    assert found.pearson > 0
    assert (found.without_0, found.without_boundary) == (8, 8)
    assert found.pearson_without_0 == found.pearson_without_boundary == pytest.approx(-1)
    assert len(line.behind(BOUNDARY + 1).steps) == 7


def test_thirds_and_welchs_t_by_hand() -> None:
    """Means 8 and 2, variances of 4 and 1, of three contexts each: t = 6 / sqrt(4/3 + 1/3)."""
    one = flips([0, 1, 2, 3, 4, 5, 6, 7, 8], [6, 8, 10, 5, 5, 5, 1, 2, 3])
    thirds = split_thirds(one)
    assert thirds is not None
    early, late = thirds
    assert (early.tolist(), late.tolist()) == ([6, 8, 10], [1, 2, 3])
    t, p = welch_test(early, late)
    assert t == pytest.approx(6 / math.sqrt(4 / 3 + 1 / 3))
    assert p is not None
    assert 0 < p < 0.05
    assert welch_test(np.ones(3), np.ones(3)) == (None, None)


def test_thirds_that_are_too_small_or_meet_are_refused_with_the_reason() -> None:
    assert split_thirds(flips([3] * 9, [*range(9)])) is None
    assert split_thirds(flips([0, 1, 2, 3], [4, 3, 2, 1])) is None
    assert split_thirds(flips([], [])) is None
    few = measure_boundary("base", "float16", "greedy", ALL_STEPS, flips([0, 1], [2, 1]))
    assert (few.pearson, few.early_kl, few.welch_t) == (None, None, None)
    assert_says(few.reason, "2 contexts with a flip", "needs 6", "no early and late third")


def test_a_context_has_one_number_the_mean_of_its_draws_and_pairs_without_a_flip_none() -> None:
    rows = [
        pair("a", 1, [0.0, 2.0, 10.0]),
        pair("a", 2, [0.0, 0.0, 6.0], draw=1),
        pair("b", None, [0.0, 1.0, 1.0]),
    ]
    every, before = (find_flips(DataFrame(rows), kl_over) for kl_over in (ALL_STEPS, UP_TO_FLIP))
    assert every.steps.tolist() == before.steps.tolist() == [1.5]
    assert every.kl.tolist() == [3.0]
    assert before.kl.tolist() == [1.5], "the steps behind the flip compare two texts"


def test_an_earlier_flip_has_the_larger_mean_over_all_steps_by_construction() -> None:
    """Every flip has the same divergence, and behind it two texts are 10 nats apart."""
    rows = [
        pair(f"c{flip}", flip, [0.0] * flip + [1.0] + [10.0] * (12 - flip)) for flip in range(1, 13)
    ]
    found = {one.kl_over: one for one in measure_boundaries(DataFrame(rows))}
    assert found[ALL_STEPS].pearson == pytest.approx(-1, abs=0.05)
    assert found[ALL_STEPS].early_kl > found[ALL_STEPS].late_kl  # type: ignore[operator]
    assert found[UP_TO_FLIP].pearson is not None
    content = build_content({"numerics_pairs": DataFrame(rows)})
    (section,) = content.parts
    (picture,) = section.pictures
    (dots,) = picture.drawing.marks
    assert len(dots.places) == 12  # type: ignore[union-attr]
    assert len(content.sheets[0].rows) == 2
    (same,) = build_content({"numerics_pairs": DataFrame([pair("a", None, [0.0])])}).parts
    assert "No answer parts" in same.text
