"""The parts of the study of numerics that repeat a text's tables, on answers few enough to count by
hand."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from pandas import DataFrame

from leaderboards.rendering.frames import PolicyLine
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.numerics import accuracy, heads, layers, repeats, steps
from leaderboards.studies.numerics.walked import DRIFT, TABLE
from leaderboards.studies.parts import in_powers
from tests.support.wording import assert_says

NAN = math.nan


def pair(number: int, kl: Sequence[float] = (0.0, 1e-4), **more: Any) -> dict[str, Any]:
    """A free-running pair of the question of one context, whose paths do not part."""
    names = {
        "task": "base",
        "question_id": f"q{number}",
        "draw_id": f"q{number}",
        "dtype": "float16",
    }
    way = {"sampling": "greedy", "draw": 0, "regime": "free-running", "pair": "cache"}
    values = {"tokens": [1, 2], "other_tokens": [1, 2], "right": True, "other_right": True}
    return names | way | values | {"kl": list(kl), "js": [one / 4 for one in kl]} | more


def test_each_step_averages_the_contexts_that_reach_it() -> None:
    rows = DataFrame(
        [pair(0, [0.0, 2e-4, 4e-4]), pair(1, [0.0, 4e-4]), pair(1, [0.0, 0.0], draw=1)]
    )
    first, second, third = steps.measure_steps(rows)
    assert [one.step for one in (first, second, third)] == [0, 1, 2]
    assert [one.contexts for one in (first, second, third)] == [2, 2, 1]
    assert (first.kl.mean, third.kl.mean) == (0.0, 4e-4)
    assert second.kl.mean == pytest.approx(2e-4)
    assert second.js is not None
    assert second.js.mean == pytest.approx(0.5e-4)
    assert third.kl.interval is None, "one context varies with nothing"


def test_steps_that_overflow_are_no_steps_and_runs_before_jensen_and_shannon_have_none() -> None:
    (one,) = steps.measure_steps(
        DataFrame([pair(0, [NAN, 2e-4], js=None), pair(1, [NAN], js=None)])
    )
    assert (one.step, one.contexts, one.js) == (1, 1, None)
    assert steps.build_content({TABLE: DataFrame([pair(0, [NAN])])}).parts == ()


def test_curves_of_orders_of_magnitude_are_drawn_as_powers_of_ten() -> None:
    """A line for each type of numbers; step 0, at which both are equal, has no power."""
    rows = [
        pair(n, [0.0, 1e-4, 1e-2], regime=regime)
        for n in range(3)
        for regime in ("teacher-forced", "free-running")
    ]
    rows += [pair(n, [0.0, 1e-12], dtype="float32", regime="teacher-forced") for n in range(3)]
    (section,) = steps.build_content({TABLE: DataFrame(rows)}).parts
    assert [picture.title for picture in section.pictures] == ["base, teacher-forced"] * 2 + [
        "base, free-running"
    ] * 2
    single, half = (
        mark.places for mark in section.pictures[0].drawing.marks if isinstance(mark, PolicyLine)
    )
    assert [place for ends in single for place in ends] == pytest.approx([1, -12])
    assert [place for ends in half for place in ends] == pytest.approx([1, -4, 2, -2])


def test_a_power_of_ten_is_of_what_is_above_0() -> None:
    points = [(0.0, None), (1.0, Estimate(0.0, 0.0, 0.0, 2)), (2.0, Estimate(1e-3, 0.0, 1e-2, 2))]
    assert in_powers(points) == [(2.0, Estimate(-3.0, None, None, 2))]


def test_answers_that_one_path_alone_has_right_are_tossed() -> None:
    """Of eight contexts five are right with the cache alone and one without it alone: p = 2 (1 + 6)
    / 64."""
    right = [(True, False)] * 5 + [(False, True), (True, True), (False, False)]
    rows = [pair(n, right=on, other_right=off) for n, (on, off) in enumerate(right)]
    rows += [pair(n, right=True, other_right=True, dtype="float32") for n in range(8)]
    single, half = accuracy.compare_accuracies(DataFrame(rows))
    assert (half.contexts, half.right_on, half.right_off) == (8, 6 / 8, 2 / 8)
    assert (half.only_on, half.only_off) == (5, 1)
    assert half.difference.mean == pytest.approx(50), "cache on less cache off, in points"
    assert half.difference.low is not None
    assert half.difference.low < 0
    assert half.p == pytest.approx(14 / 64)
    assert (half.p_bonferroni, half.p_bh) == pytest.approx((28 / 64, 28 / 64)), "two tests"
    assert (single.only_on, single.only_off, single.p, single.p_bh) == (0, 0, 1.0, 1.0)


def test_draws_of_a_context_are_no_further_contexts() -> None:
    """Greedy seeds are copies: five of them would make two contexts ten."""
    rows = [
        pair(n, right=True, other_right=False, sampling="top_k", draw=draw)
        for n in range(2)
        for draw in range(5)
    ]
    (one,) = accuracy.compare_accuracies(DataFrame(rows[::-1]))
    assert (one.contexts, one.only_on, one.p) == (2, 2, 0.5)


def test_text_on_which_nothing_is_asked_has_no_accuracy() -> None:
    assert (
        accuracy.build_content({TABLE: DataFrame([pair(0, right=None, other_right=None)])}).parts
        == ()
    )


def test_an_example_parts_at_all_draws_at_some_or_at_none() -> None:
    parted = {
        0: (True, True, True),
        1: (True, False, False),
        2: (False, False, False),
        3: (False, False, True),
    }
    rows = [
        pair(n, sampling="top_p", draw=draw, other_tokens=[1, 3] if parts else [1, 2])
        for n, draws in parted.items()
        for draw, parts in enumerate(draws)
    ]
    rows += [pair(4, sampling="top_p", draw=0), pair(4, [NAN, NAN], sampling="top_p", draw=1)]
    (one,) = repeats.measure_repeats(DataFrame(rows))
    assert (one.draws, one.examples) == (3, 4), "an example of which a draw overflows is left out"
    assert (one.always.mean, one.sometimes.mean, one.never.mean) == (0.25, 0.5, 0.25)
    assert one.always.interval is not None


def drift(number: int, layer: int, l2: float, **more: Any) -> dict[str, Any]:
    names = {
        "task": "base",
        "question_id": f"q{number}",
        "draw_id": f"q{number}",
        "dtype": "float16",
        "layer": layer,
    }
    lists = {
        "hidden_l2": [0.0, l2, 9.0],
        "hidden_cosine": [1.0, 1 - l2 / 8, 0.5],
        "attention_kl": [l2, 3 * l2],
    }
    return names | lists | more


# Three contexts: the second layer is farther apart in all of them, the third as far as the second.
LAYERS = [
    drift(n, layer, l2 + n / 8) for n in range(3) for layer, l2 in enumerate((0.25, 1.0, 1.0))
]


def test_layers_are_told_at_step_1_and_tested_against_the_layer_before() -> None:
    """Three distances above three others: 2 of 20 orders; two tests are corrected."""
    first, second, third = layers.measure_layers(DataFrame(LAYERS))
    assert (first.l2.mean, second.l2.mean, second.contexts) == (0.375, 1.125, 3)
    assert second.cosine.mean == pytest.approx(1 - 1.125 / 8)
    assert second.turned.mean == pytest.approx(1.125 / 8)
    assert (first.times, second.times, third.times) == (None, 3.0, 1.0)
    assert (first.p, first.p_bh) == (None, None), "nothing comes before it"
    assert second.p == pytest.approx(2 / 20)
    assert second.p_bonferroni == pytest.approx(4 / 20)
    assert second.p_bh == pytest.approx(4 / 20)
    assert third.p == 1.0


def test_answers_that_lack_the_step_or_overflow_tell_nothing_of_layers() -> None:
    short = [
        drift(7, layer, 1.0, hidden_l2=[0.0], hidden_cosine=[1.0], attention_kl=[])
        for layer in range(3)
    ]
    lost = [drift(8, layer, NAN if layer else 1.0) for layer in range(3)]
    before = [
        drift(9, layer, 1.0, **dict.fromkeys(("hidden_l2", "hidden_cosine", "attention_kl")))
        for layer in (0, 1)
    ]
    assert layers.measure_layers(
        DataFrame(LAYERS + short + lost + before)
    ) == layers.measure_layers(DataFrame(LAYERS))
    assert layers.build_content({DRIFT: DataFrame(short + before)}).parts == ()
    assert heads.build_content({DRIFT: DataFrame(short + before)}).parts == ()


def test_heads_have_their_mean_and_a_map_of_shares_of_the_largest() -> None:
    found = heads.measure_heads(DataFrame(LAYERS))
    assert [(one.layer, one.head) for one in found] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert [one.kl.mean for one in found[:2]] == pytest.approx([0.375, 3 * 0.375])
    (section,) = heads.build_content({DRIFT: DataFrame(LAYERS)}).parts
    (name, tiles), *_ = section.maps[0].rows
    assert name == "0"
    assert [tile.heat for tile in tiles if tile] == pytest.approx([0.375 / 3.375, 1.125 / 3.375])
    assert [tile.text for tile in tiles if tile] == ["11", "33"]
    printed = [heading for heading, _ in section.printable]
    (line,) = printed
    assert_says(line, "base, float16", "percent of 3 nats")


def test_maps_of_heads_are_of_16_bits_unless_there_nothing_parts() -> None:
    single = [one | {"dtype": "float32"} for one in LAYERS]
    equal = [one | {"attention_kl": [0.0, 0.0]} for one in LAYERS]
    for rows, dtype in ((LAYERS + single, "float16"), (equal + single, "float32")):
        content = heads.build_content({DRIFT: DataFrame(rows)})
        assert [one.title.split(":")[0] for one in content.parts[0].maps] == [f"base, {dtype}"]
        assert len(content.sheets[0].rows) == 12, "the sheet has both"
    assert heads.build_content({DRIFT: DataFrame(equal)}).parts == ()


def test_layers_have_a_picture_of_distance_and_of_cosine() -> None:
    (section,) = layers.build_content({DRIFT: DataFrame(LAYERS)}).parts
    assert [picture.note.split(",")[0] for picture in section.pictures] == [
        "L2 distance",
        "1 − cosine",
    ]
