"""What the study of instructions shows of the paper's own figures (eviction bias, order of the
families, one directive against several, the defence): by hand."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from leaderboards.aggregate.summary import summarise
from leaderboards.studies.instructions.bias import spans_kept, spans_kept_by_layer
from leaderboards.studies.instructions.by_number import kept_by_number, relative_obedience
from leaderboards.studies.instructions.families import (
    ALIKE,
    TOO_FEW,
    rank_correlation,
    rank_correlations,
)
from leaderboards.studies.instructions.prompts import leaks, prompt_records
from policies.declaration.levels import UNTREATED
from tests.support.records.study_records import (
    BOTH,
    HALF,
    answer,
    attack,
    instructions_page,
    records,
)

FIRST, SECOND = BOTH


def kept(
    draw: int, arm: str, policy: str, defence: float | None, directives: float, **more: Any
) -> dict[str, Any]:
    """An answer from a cache of two layers, of which the upper one keeps more of the defence."""
    by_layer = None if defence is None else [defence - 0.1, defence + 0.1]
    shares = {
        "defence_kept": defence,
        "directives_kept": directives,
        "realised_ratio": 0.0 if policy == "full" else 0.48,
    }
    layers = {"defence_kept_by_layer": by_layer, "directives_kept_by_layer": [directives] * 2}
    return answer(draw, arm, policy, [True], **more) | shares | layers


def bias_rows() -> list[dict[str, Any]]:
    """SnapKV keeps 0.2 and 0.4 of a defence that stands first, 0.6 of the directives; behind them
    it keeps 0.5."""
    rows = []
    for draw, defence in enumerate((0.2, 0.4)):
        rows += [kept(draw, arm, "full", 1.0, 1.0) for arm in BOTH]
        rows += [kept(draw, FIRST, "snapkv", defence, 0.6), kept(draw, SECOND, "snapkv", 0.5, 0.5)]
        rows += [
            kept(draw, FIRST, "snapkv+fair", 0.5, 0.5),
            kept(draw, "no defence", "snapkv", None, 0.9),
        ]
    return rows


def test_kept_shares_are_means_over_contexts_by_order_and_their_difference_is_paired() -> None:
    found = {
        (row["policy"], row["level"], row["arm"]): row
        for row in spans_kept(prompt_records(records(*bias_rows())))
    }
    first = found["snapkv", HALF, FIRST]
    assert first["realised_ratio"] == 0.48
    assert first["defence_kept"].mean == pytest.approx(0.3)
    assert first["directives_kept"].mean == pytest.approx(0.6)
    assert first["difference"].mean == pytest.approx(-0.3)
    assert first["difference"].low < -0.3 < first["difference"].high
    assert found["snapkv", HALF, SECOND]["difference"].mean == pytest.approx(0.0)
    without = found["snapkv", HALF, "no defence"]
    assert (without["defence_kept"], without["difference"]) == (None, None)
    assert without["directives_kept"].mean == pytest.approx(0.9)
    full = found["full", UNTREATED, FIRST]["defence_kept"]
    assert (full.mean, full.low, full.high) == (1.0, 1.0, 1.0), "by design, in every context"


def test_kept_shares_by_layer_are_means_over_contexts() -> None:
    found = spans_kept_by_layer(prompt_records(records(*bias_rows())))
    own = [row for row in found if (row["policy"], row["arm"]) == ("snapkv", FIRST)]
    assert [row["layer"] for row in own] == [0, 1]
    assert [row["defence_kept"] for row in own] == pytest.approx([0.2, 0.4])
    assert [row["directives_kept"] for row in own] == pytest.approx([0.6, 0.6])
    assert [row["difference"] for row in own] == pytest.approx([-0.4, -0.2])
    without = [row for row in found if row["arm"] == "no defence"]
    assert [(row["defence_kept"], row["difference"]) for row in without] == [(None, None)] * 2


def test_the_summary_has_what_is_kept_over_the_contexts_that_have_a_defence() -> None:
    rows = {(row.policy, row.at): row for row in summarise(records(*bias_rows()))}
    own = rows["snapkv", HALF]
    assert own.defence_kept == pytest.approx((0.2 + 0.4 + 0.5 + 0.5) / 4)
    assert own.directives_kept == pytest.approx((0.6 + 0.6 + 0.5 + 0.5 + 0.9 + 0.9) / 6)
    assert own.defence_kept_by_layer == pytest.approx((0.3, 0.5))
    assert own.defence_kept_low is not None
    assert own.defence_kept_low < 0.4


# --- the order of the families


@pytest.mark.parametrize("alike", [False, True])
def test_rank_correlations_are_those_of_scipy_ties_and_missing_families_among_them(
    alike: bool,
) -> None:
    generator = np.random.default_rng(4)
    first, second = generator.integers(0, 4 if alike else 100, (2, 7, 60)) / 4.0
    first[2, ::7] = np.nan
    second[5, ::5] = np.nan
    for place, value in enumerate(rank_correlation(first, second)):
        known = ~np.isnan(first[:, place]) & ~np.isnan(second[:, place])
        assert value == pytest.approx(
            spearmanr(first[known, place], second[known, place]).statistic
        )
    ordered = np.arange(4, dtype=np.float64)[:, None]
    assert np.isnan(rank_correlation(np.ones((4, 1)), ordered)).all(), "without an order"


def families(obeyed: dict[str, list[float]], contexts: int = 4) -> Any:
    """Prompts of four families; of each policy so many quarters of the contexts obey each
    family."""
    rows = []
    for policy, shares in obeyed.items():
        for draw in range(contexts):
            verdicts = [draw < share * contexts for share in shares]
            rows.append(answer(draw, FIRST, policy, verdicts))
    return prompt_records(records(*rows))


def test_the_order_of_families_is_compared_with_the_full_caches() -> None:
    """By hand: ranks 1, 2, 3, 4 against 1, 2, 4, 3 have 1 - 6 (1 + 1) / (4 * 15) = 0.8."""
    shares = {
        "full": [0.25, 0.5, 0.75, 1.0],
        "same": [0.0, 0.25, 0.5, 0.75],
        "swapped": [0.0, 0.25, 0.75, 0.5],
        "reversed": [1.0, 0.75, 0.5, 0.25],
        "nothing": [0.0, 0.0, 0.0, 0.0],
    }
    found = {(one.policy, one.directives): one for one in rank_correlations(families(shares))}
    means = {
        name: one.correlation.mean
        for (name, number), one in found.items()
        if one.correlation and number == "any"
    }
    assert means == pytest.approx({"same": 1.0, "swapped": 0.8, "reversed": -1.0})
    assert found["same", "any"].families == 4
    assert (found["nothing", "any"].correlation, found["nothing", "any"].reason) == (None, ALIKE)
    assert ("same", "one") not in found, "no prompt has one directive"
    assert found["swapped", "several"].correlation == found["swapped", "any"].correlation


def test_three_families_are_too_few_for_an_order() -> None:
    (found, _) = rank_correlations(families({"full": [0.25, 0.5, 0.75], "tova": [0.25, 0.5, 0.75]}))
    assert (found.correlation, found.reason, found.families) == (None, TOO_FEW, 3)


# --- one directive against several


def test_what_is_obeyed_over_the_full_caches_by_the_number_of_directives() -> None:
    """Alone 3 of 4 are obeyed where the full cache obeys all; of pairs 2 of 8 where it obeys 4; of
    four directives none where it obeys 8 of 16. Three directives count as four do."""
    rows = []
    for draw in range(4):
        for number, (full, treated) in {
            1: ([True], [draw > 0]),
            2: ([True, False], [draw < 2, False]),
        }.items():
            for policy, verdicts in (("full", full), ("tova", treated)):
                rows.append(
                    answer(draw, FIRST, policy, verdicts) | {"question_id": f"{draw}/{number}"}
                )
        for policy, verdicts in (("full", [True, True, False, False]), ("tova", [False] * 4)):
            rows.append(answer(draw, FIRST, policy, verdicts) | {"question_id": f"{draw}/4"})
    prompts = prompt_records(records(*rows))
    found = {one.directives: one for one in kept_by_number(prompts) if one.policy == "tova"}
    assert {
        name: one.relative.mean for name, one in found.items() if one.relative
    } == pytest.approx({"1": 0.75, "2": 0.5, "3+": 0.0})
    assert found["2"].strict is not None
    assert found["2"].strict.mean == pytest.approx(2 / 8)
    assert found["1"].relative is not None
    assert found["1"].relative.low is not None
    assert found["1"].relative.low < 0.75
    nothing = prompts.directives[prompts.directives["policy"] == "nobody"]
    assert relative_obedience(prompts, prompts.directives, nothing) is None


# --- the defence


def test_a_defence_holds_where_less_than_a_share_of_the_text_leaks() -> None:
    """Recalls of 0.1, 0.3, 0.5 and 0.9: one is below 0.3, two below half and three below 0.8."""
    rows = [attack(draw, FIRST, "tova", leaked) for draw, leaked in enumerate((0.1, 0.3, 0.5, 0.9))]
    rows += [attack(draw, "no defence", "tova", 0.0) for draw in range(4)]
    found = leaks(prompt_records(records(*rows))).set_index("arm")
    held = [
        found.loc[FIRST][name].mean
        for name in ("defence_success_30", "defence_success", "defence_success_80")
    ]
    assert held == [0.25, 0.5, 0.75]
    interval = found.loc[FIRST]["defence_success"]
    assert interval.low < 0.5 < interval.high
    assert found.loc["no defence"]["defence_success"] is None, "there is none that could hold"


def test_the_page_has_a_section_and_a_download_of_each() -> None:
    rows = []
    for draw in range(3):
        for arm in BOTH:
            for policy, share in (("full", 1.0), ("snapkv", 0.3), ("snapkv+fair", 0.5)):
                rows.append(kept(draw, arm, policy, share, 1.0) | answer_of_four(draw, arm, policy))
                rows.append(attack(draw, arm, policy, 0.0 if policy == "full" else 0.6))
    page, content = instructions_page("toy", records(*rows))
    shown = {part.identifier: part for part in content.parts}
    assert {
        "bias",
        "bias-protected",
        "bias-layers",
        "families",
        "ranks",
        "numbers",
        "defence",
    } <= set(shown)
    assert [picture.title for picture in shown["bias"].pictures] == [
        f"snapkv, {arm}" for arm in BOTH
    ]
    assert [len(shown[name].pictures) for name in ("bias-protected", "bias-layers")] == [2, 2]
    sheets = {sheet.name: sheet for sheet in content.sheets}
    for name in ("bias", "bias-layers", "ranks", "numbers"):
        assert f"instructions-{name}.csv" in page or sheets[f"instructions-{name}"].rows
    assert "−70 [" in page, "points between defence and directives"


def answer_of_four(draw: int, arm: str, policy: str) -> dict[str, Any]:
    """What an answer under four directives has of its own."""
    verdicts = [True, True, True, draw > 0] if policy == "full" else [True, False, draw > 1, False]
    row = answer(draw, arm, policy, verdicts)
    return {
        name: row[name]
        for name in ("directives", "directive_families", "directives_strict", "directives_loose")
    }
