"""What patches recover: shares by hand, the examples of the largest divergence, and tables of
earlier runs."""

from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.rendering.frames import PolicyLine
from leaderboards.studies.numerics.patches import (
    HIGHEST,
    INTO_OFF,
    INTO_ON,
    build_content,
    estimate_median,
    highest,
    measure_recoveries,
    read_patches,
)
from leaderboards.studies.numerics.walked import ALL

CONTEXTS = 12


def patch_row(number: int, **more: Any) -> dict[str, Any]:
    names = {
        "task": "base",
        "question_id": f"q{number}",
        "draw_id": f"q{number}",
        "dtype": "float16",
    }
    place = {
        "direction": INTO_OFF,
        "rows": "residual",
        "layers": "one",
        "layer": 0,
        "place": "first",
        "step": 1,
    }
    kl = {
        "kl": 0.5,
        "kl_patched": 0.5,
        "kl_after": 1.0,
        "kl_after_patched": 1.0,
        "kl_answer": float(number),
    }
    return names | place | kl | more


def earlier_rows(at_flip: bool) -> DataFrame:
    """Rows of all layers recover nine tenths, the stream of the first layer nothing."""
    left = {
        ("residual", 0): 1.0,
        ("residual", 1): 0.0,
        ("keys and values", -1): 0.1,
        ("both", -1): 0.0,
    }
    rows = []
    for number in range(CONTEXTS):
        for (part, layer), share in left.items():
            one = patch_row(number, rows=part, layer=layer, at_flip=at_flip, kl_patched=0.5 * share)
            for name in (
                "direction",
                "layers",
                "place",
                "kl_after",
                "kl_after_patched",
                "kl_answer",
            ):
                del one[name]
            rows.append(one)
    return DataFrame(rows)


def test_recovery_by_hand_at_the_step_and_over_those_behind() -> None:
    """Of three contexts a patch leaves a half, none and twice the divergence: 0.5, 1 and -1."""
    left = (0.25, 0.0, 1.0)
    rows = [
        patch_row(number, kl_patched=kl, kl_after_patched=0.9) for number, kl in enumerate(left)
    ]
    (one,) = measure_recoveries(DataFrame(rows))
    assert one.cases == 3
    assert one.recovered.mean == pytest.approx(0.5 / 3)
    assert one.median.mean == pytest.approx(0.5)
    assert one.recovered.interval is not None
    assert one.recovered_after is not None
    assert one.recovered_after.mean == pytest.approx(0.1)
    assert one.median_after is not None
    assert one.median_after.mean == pytest.approx(0.1)


def test_a_step_without_divergence_has_no_recovery() -> None:
    assert measure_recoveries(DataFrame([patch_row(0, kl=0.0, kl_patched=0.0)])) == []
    assert measure_recoveries(DataFrame([patch_row(0, kl_patched=float("nan"))])) == []


def test_the_median_weighs_contexts_and_has_an_interval() -> None:
    median = estimate_median(np.array([0.0, 0.0, 0.3, 1.0]), ["a", "a", "b", "c"])
    assert median.mean == 0.3
    assert median.interval == (0.0, 1.0)
    assert estimate_median(np.array([0.5]), ["a"]).interval is None


def test_the_texts_direction_is_measured_on_the_answers_of_the_largest_divergence() -> None:
    rows = [patch_row(number, layer=layer) for number in range(HIGHEST + 2) for layer in (0, 1)]
    others = [patch_row(number, direction=INTO_ON, place="flip") for number in range(HIGHEST + 2)]
    kept = highest(DataFrame([*rows, *others]))
    text = kept[kept["direction"] == INTO_OFF]
    assert set(text["question_id"]) == {f"q{number}" for number in range(2, HIGHEST + 2)}
    assert len(text) == 2 * HIGHEST
    assert len(kept) - len(text) == HIGHEST + 2


def test_tables_of_earlier_runs_are_read_in_one_direction_without_later_steps() -> None:
    table = read_patches({"numerics_patches": earlier_rows(at_flip=True)})
    assert table is not None
    found = {(one.patched, one.layers, one.layer): one for one in measure_recoveries(table)}
    whole = found["keys and values", "all", ALL]
    assert (whole.direction, whole.place, whole.cases, whole.recovered_after) == (
        INTO_ON,
        "flip",
        CONTEXTS,
        None,
    )
    assert whole.median.mean == pytest.approx(0.9)
    assert whole.recovered.interval == pytest.approx((0.9, 0.9))
    assert found["residual", "one", 0].median.mean == 0.0
    assert read_patches({}) is None


def test_a_page_draws_single_and_cumulative_over_layers() -> None:
    extents = [("one", 0), ("one", 1), ("one", 2), ("up to", 1), ("all", ALL)]
    rows = [
        patch_row(number, layers=extent, layer=layer, kl_patched=0.1 * (layer + 1))
        for number in range(4)
        for extent, layer in extents
    ]
    content = build_content({"numerics_recovery": DataFrame(rows)})
    (section,) = content.parts
    (picture,) = section.pictures
    lines = [mark.places for mark in picture.drawing.marks if isinstance(mark, PolicyLine)]
    assert len(lines) == 4, "one layer and all up to it, at the step and over those behind"
    assert [layer for layer, _ in lines[1]] == [0, 1, 2], "from the first alone to all"
    assert dict(lines[0])[1] == pytest.approx(0.6)
    (sheet,) = content.sheets
    assert {
        "direction",
        "place",
        "patched",
        "layers",
        "layer",
        "recovered",
        "median",
        "median_low",
    } <= {*sheet.columns}
    assert build_content({}).parts == ()
