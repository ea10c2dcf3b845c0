"""The study of numerics, on tables where the truth is known: drift, patches, groups, boundary, remedies, policies."""

import math
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.studies.declaration import StudyInput
from leaderboards.studies.numerics.boundary import boundaries_of, partial_correlation, susceptibilities_of
from leaderboards.studies.numerics.layers import (
    DRIFT,
    GROUPS,
    PATCHES,
    drift_of,
    groups_of,
    misplaced,
    products_of,
    recoveries_of,
)
from leaderboards.studies.numerics.pairs import TABLE
from leaderboards.studies.numerics.precision import POLICIES, moved_of, remedies_of
from leaderboards.studies.numerics.study import STUDY
from leaderboards.studies.page import build_study
from tests.studies.test_numerics_study import FREE, given, row
from tests.support.records.synthetic_records import frame, record

CONTEXTS = 12
ANSWER = {"task": "base", "policy": "full", "level_kind": "ratio", "level": 0.0, "repeat": 0}


def named(number: int, **more: Any) -> dict[str, Any]:
    return ANSWER | {"question_id": f"q{number}", "draw_id": f"q{number}", "dtype": "float16"} | more


def drifts(layers: int = 3, **more: Any) -> list[dict[str, Any]]:
    """Layer n adds an error of 2 to each step, so that distances grow as roots; 5 rows are the prompt's, 3 written."""
    rows = []
    for number in range(CONTEXTS):
        for layer in range(layers):
            distance = 2.0 * math.sqrt(layer + 1)
            steps = [0.0] + [0.001 * (layer + 1) * (1 + number / 100) * (1 + step / 10) for step in range(3)]
            positions = [1e-6] * 5 + [1e-3 * (layer + 1)] * 3
            lists = dict.fromkeys(("keys", "values"), positions)
            lists |= dict.fromkeys(("keys_cosine", "values_cosine"), [1.0] * 8)
            lists |= dict.fromkeys(("keys_written", "values_written", "hidden"), steps)
            lists |= {"hidden_l2": [0.0] + [distance] * 3, "hidden_cosine": [1.0, 0.9, 0.9, 0.9]}
            lists |= {"added_l2": [0.0, 2.0, 2.0, 2.0], "attention_kl": [0.1, 0.3]}
            lists |= {"lengths": [16, 32], "product_error": [3e-4, 4e-4]}
            rows.append(named(number, layer=layer) | lists | more)
    return rows


def test_drift_leaves_out_the_step_at_which_both_read_the_prompt() -> None:
    first, second, third = drift_of(DataFrame(drifts()))
    assert (first.keys_prompt, first.keys_answer) == pytest.approx((1e-6, 1e-3))
    assert second.hidden.mean == pytest.approx(2 * first.hidden.mean)
    assert third.hidden_cosine == pytest.approx(0.9)
    assert first.attention_kl == pytest.approx(0.2)
    assert first.growth is not None
    assert first.growth.mean == pytest.approx(1.0)


def test_errors_of_layers_add_up_as_independent_ones() -> None:
    for layer in drift_of(DataFrame(drifts())):
        assert layer.predicted_l2 == pytest.approx(layer.hidden_l2)
        assert layer.hidden_l2 == pytest.approx(2 * math.sqrt(layer.layer + 1))


def test_layers_are_tested_against_the_first_over_contexts_and_corrected_together() -> None:
    first, second, third = drift_of(DataFrame(drifts()))
    assert first.p_layer is first.p_layer_bh is None
    assert second.p_layer == third.p_layer == pytest.approx(3.66e-5, rel=1e-2), (
        "twelve contexts all above twelve others"
    )
    alike = drift_of(DataFrame([one | {"hidden": [0.0, 0.1 + int(one["question_id"][1:])]} for one in drifts()]))
    assert alike[1].p_layer == 1.0


def test_answers_of_one_token_drift_nowhere() -> None:
    short = [one | {"hidden": [0.0], "keys": [0.0] * 5} for one in drifts()]
    assert drift_of(DataFrame(short)) == []


@pytest.mark.parametrize(
    ("keys", "values", "named_as"),
    [(0.004, 0.004, None), (0.3, 0.004, "other positions"), (0.9, 1.2, "other tokens")],
)
def test_rows_of_the_first_layer_tell_a_wrong_position_from_a_wrong_token(
    keys: float, values: float, named_as: str | None
) -> None:
    rows = drifts()
    rows[0] |= {"keys": [1e-3] * 7 + [keys], "values": [1e-3] * 7 + [values]}
    rows[1] |= {"keys": [0.9] * 8}  # in a later layer anything may be
    assert misplaced(DataFrame(rows)).get(("float16", "base")) == named_as


def page_of(**tables: DataFrame) -> str:
    one = given(row("q0", [1e-3, 2e-3]), row("q0", [1e-3, 2e-3], **FREE))
    names = {f"numerics_{name}": table.drop(columns="draw_id") for name, table in tables.items()}
    records = frame([record(task="base", question_id=f"q{n}", draw_id=f"q{n}") for n in range(CONTEXTS)])
    return build_study(STUDY, StudyInput("toy", records, one.runs, {**one.tables, **names}))[0]


def test_a_wrong_position_is_named_on_the_page_where_distributions_hide_it() -> None:
    """Its divergences are a thousandth of those one step apart, as rounding's are."""
    rows = drifts(keys=[0.5] * 8)
    assert "nats in float16, base: misaligned" not in page_of(drift=DataFrame(drifts()))
    page = page_of(drift=DataFrame(rows))
    assert "cache on was given base, float16: other positions" in page
    assert "nats in float16, base: misaligned" in page


def patches(at_flip: bool) -> DataFrame:
    """Rows of all layers recover nine tenths, the stream of the first layer nothing."""
    left = {("residual", 0): 1.0, ("residual", 1): 0.0, ("keys and values", -1): 0.1, ("both", -1): 0.0}
    return DataFrame(
        named(number, rows=rows, layer=layer, step=2, at_flip=at_flip, kl=0.5, kl_patched=0.5 * share)
        for number in range(CONTEXTS)
        for (rows, layer), share in left.items()
    )


def test_recovery_is_the_share_of_the_divergence_that_goes() -> None:
    found = {(one.patched, one.layer): one for one in recoveries_of(patches(True))}
    assert found["keys and values", -1].median == pytest.approx(0.9)
    assert found["keys and values", -1].recovered.interval == pytest.approx((0.9, 0.9))
    assert found["residual", 0].median == 0.0
    assert found["residual", 0].cases == CONTEXTS


def test_without_a_flip_the_page_says_that_there_is_nothing_to_localise() -> None:
    assert "there is no flip to localise" in page_of(patches=patches(False))
    assert "there is no flip to localise" not in page_of(patches=patches(True))


def test_groups_are_held_against_one_query_head_to_a_head() -> None:
    rows = [
        named(number, whose="random", size=size, hidden=[9.0, factor * (1 + number), factor * (1 + number)])
        for number in range(CONTEXTS)
        for size, factor in {1: 1e-4, 2: 1e-4, 8: 3e-4}.items()
    ]
    alone, two, eight = groups_of(DataFrame(rows))
    assert (alone.amplified.mean, two.amplified.mean, eight.amplified.mean) == pytest.approx((1, 1, 3))
    assert eight.amplified.interval == pytest.approx((3, 3)), "contexts are paired"
    assert eight.last_layer.mean == eight.after_first.mean == pytest.approx(3e-4 * 6.5)
    assert "random weights" in page_of(groups=DataFrame(rows))


def test_errors_of_products_are_averaged_as_squares() -> None:
    rows = drifts(1) + [one | {"product_error": [1e-4, 4e-4]} for one in drifts(1)]
    by_length = {one.length: one.product_error for one in products_of(DataFrame(rows))}
    assert by_length == pytest.approx({16: math.sqrt(5) * 1e-4, 32: 4e-4})


def flips(steps: list[int], kl: list[float], margins: list[float]) -> DataFrame:
    """Answers of six steps that part at a step, with a divergence and a margin there."""
    rows = []
    for number, (step, divergence, margin) in enumerate(zip(steps, kl, margins, strict=True)):
        lists = [1e-5] * 6, [4.0] * 6
        lists[0][step], lists[1][step] = divergence, margin
        other = [*range(step), *range(20, 26 - step)]
        rows.append(row(f"q{number}", lists[0], margin=lists[1], other_tokens=other, **FREE))
        rows.append(row(f"q{number}", [1e-5] * 6, margin=[4.0, 4.0, 4.0, 4.0, 4.0, 0.5]))
    return DataFrame(rows)


def test_margins_and_divergences_at_flips_by_hand() -> None:
    (one,) = boundaries_of(flips([0, 1, 2, 3, 4, 5], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], [0.1] * 6))
    assert (one.pairs, one.flips) == (6, 6)
    assert (one.margin_at_flip, one.margin, one.margin_least) == (0.1, 4.0, 0.5)
    assert (one.kl_early, one.kl_late) == (5.5, 1.5)
    assert one.p_welch == pytest.approx(0.0299, abs=1e-3)
    assert (one.pearson, one.spearman) == pytest.approx((-1, -1))
    assert one.partial is None, "margins that are all alike share nothing"


def test_what_two_share_with_a_third_is_taken_out() -> None:
    generator = np.random.default_rng(0)
    shared = generator.normal(size=400)
    one, other = (shared + 0.3 * generator.normal(size=400) for _ in range(2))
    assert np.corrcoef(one, other)[0, 1] > 0.8
    left = partial_correlation(one, other, shared)
    assert left is not None
    assert abs(left) < 0.15
    assert partial_correlation(shared, other, shared) is None


def test_without_flips_nothing_is_said_of_where_answers_part() -> None:
    (one,) = boundaries_of(DataFrame([row("a", [1e-6] * 3), row("a", [1e-6] * 3, **FREE)]))
    assert (one.flips, one.margin_at_flip, one.kl_early, one.pearson, one.partial) == (0, None, None, None, None)
    assert "None of 1 pairs of answers parts" in page_of()


def test_noise_is_told_by_its_amplitude() -> None:
    records = frame([
        record(
            task="base",
            question_id=f"q{n}",
            draw_id=f"q{n}",
            policy=f"multiplicative_normal(std={std})",
            masked=n > limit,
        )
        for n in range(10)
        for std, limit in {"0.3": 7, "0.01": -1, "0.1": 1}.items()
    ])  # fmt: skip
    found = susceptibilities_of(records)
    assert [one.amplitude for one in found] == [0.01, 0.1, 0.3]
    assert [one.changed.mean for one in found] == pytest.approx([0.0, 0.2, 0.8])


def test_a_remedy_is_held_against_the_same_questions() -> None:
    seconds = {"path_seconds": 2.0}
    plain = [row("a", [4e-3, 4e-3], **seconds), row("b", [9.0, 9.0], **seconds)]
    rows = [*plain, row("a", [1e-3, 1e-3], pair="float32 cache", path_seconds=5.0)]
    (one,) = remedies_of(DataFrame(rows))
    assert (one.walks, one.kl, one.kl_remedied, one.time) == pytest.approx((1, 4e-3, 1e-3, 2.5))
    assert one.recovered == pytest.approx(0.75)
    (nothing,) = remedies_of(DataFrame([row("a", [0.0], **seconds), row("a", [0.0], pair="recomputed", **seconds)]))
    assert nothing.recovered is None


def test_policies_whose_order_rounding_decides_are_counted() -> None:
    records = frame([
        record(task="base", question_id=f"q{n}", draw_id=f"q{n}", policy=policy, level=0.5, f1=f1)
        for n in range(CONTEXTS)
        for policy, f1 in {"knorm": 60.0, "snapkv": 50.0}.items()
    ])  # fmt: skip
    rows = DataFrame(
        named(n, policy=policy, level=0.5, moved=moved, same_tokens=n % 2 == 0, f1=f1, right=True)
        for n in range(CONTEXTS)
        for policy, f1, moved in (("knorm", 55.0, 0.1), ("snapkv", 58.0, None))
    )
    knorm, snapkv = moved_of(rows.drop(columns="draw_id"), records)
    assert knorm.moved is not None
    assert knorm.moved.mean == pytest.approx(0.1)
    assert snapkv.moved is None
    assert knorm.same_tokens.mean == 0.5
    assert knorm.f1_change is not None
    assert knorm.f1_change.mean == pytest.approx(-5)
    assert (knorm.f1_rank, knorm.f1_rank_again, snapkv.f1_rank, snapkv.f1_rank_again) == (1, 2, 2, 1)


def test_every_table_of_the_suite_is_read() -> None:
    assert {TABLE, DRIFT, PATCHES, GROUPS, POLICIES} == {*STUDY.tables}
