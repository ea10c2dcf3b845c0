"""The claims about numerics, on made-up pairs of answers where the truth is known."""

from collections.abc import Callable
from typing import Any

import pytest
from pandas import DataFrame

from kvbench.commands.claims import make_job
from kvbench.experiments.build_grid import build_grid
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.errors import ERRORS
from leaderboards.claims.texts.numerics import GROUPS, SHARED, WALKED
from leaderboards.claims.verdict import Judgement, judge
from leaderboards.studies.numerics.patches import EARLIER as PATCHES
from leaderboards.studies.numerics.walked import TABLE
from tests.support.wording import assert_says

STEPS = 6
# Tokens of both, KL, margins, right of both.
Pair = tuple[list[int], list[int], list[float], list[float], bool, bool]
SAME: Pair = ([1] * STEPS, [1] * STEPS, [1e-4] * STEPS, [4.0] * STEPS, True, True)


def parting(
    step: int, kl: float = 1e-3, margin: float = 0.01, right: tuple[bool, bool] = (True, True)
) -> Pair:
    """A pair that parts at a step, where it has this divergence and margin."""
    divergences, margins = [1e-4] * STEPS, [4.0] * STEPS
    divergences[step], margins[step] = kl, margin
    return [1] * STEPS, [1] * step + [2] * (STEPS - step), divergences, margins, *right


def walked(
    free: Callable[[int], Pair], forced_kl: float = 1e-4, contexts: int = 12, dtype: str = "float16"
) -> Evidence:
    """A question of each context: the free-running pair of its number, and a teacher-forced one of
    equal margins."""
    rows, records = [], []
    for number in range(contexts):
        question = {"task": "base", "question_id": f"base/{number}/0"}
        records.append(question | {"draw_id": f"base/{number}"})
        for name in {dtype, "bfloat16", "float32"}:
            tokens, other, kl, margin, right, other_right = free(number) if name == dtype else SAME
            common = question | {"dtype": name, "sampling": "greedy", "draw": 0, "pair": "cache"}
            lists = {"tokens": tokens, "other_tokens": other, "kl": kl, "margin": margin}
            rows.append(
                common
                | lists
                | {"regime": "free-running", "right": right, "other_right": other_right}
            )
            forced = {"tokens": [1] * STEPS, "other_tokens": [1] * STEPS, "kl": [forced_kl] * STEPS}
            rows.append(
                common
                | forced
                | {
                    "margin": [4.0] * STEPS,
                    "regime": "teacher-forced",
                    "right": None,
                    "other_right": None,
                }
            )
    return Evidence(DataFrame(records), tables={TABLE: DataFrame(rows)})


def judge_walk(identifier: str, evidence: Evidence) -> list[Judgement]:
    return judge([claims()[identifier]], {WALKED.name: evidence})


@pytest.mark.parametrize(
    ("identifier", "evidence", "verdict"),
    [
        ("N1", walked(lambda number: parting(number % STEPS), contexts=80), "holds"),
        (
            "N1",
            walked(lambda number: parting(number % STEPS)),
            "undecided",
        ),  # 12 of 12 may be 73 % of all
        ("N1", walked(lambda number: SAME), "does not hold"),
        ("N1", walked(lambda number: parting(2) if number % 2 else SAME), "does not hold"),
        ("N2", walked(lambda number: parting(3), dtype="float32"), "does not hold"),
        ("N2", walked(lambda number: SAME, dtype="float32", contexts=80), "holds"),
        ("N2", walked(lambda number: SAME, dtype="float32", contexts=12), "undecided"),
        ("N3", walked(lambda number: SAME, forced_kl=11.0), "holds"),
        ("N3", walked(lambda number: SAME, forced_kl=6e-3), "does not hold"),
        ("N4", walked(lambda number: parting(1, right=(number % 4 < 3, False))), "holds"),
        ("N4", walked(lambda number: parting(1, right=(False, number % 4 < 3))), "does not hold"),
        ("N4", walked(lambda number: SAME), "undecided"),
    ],
)
def test_verdicts_where_the_truth_is_known(
    identifier: str, evidence: Evidence, verdict: str
) -> None:
    (one,) = judge_walk(identifier, evidence)
    assert one.verdict == verdict, one.why


@pytest.mark.parametrize("identifier", ["N1", "N3", "N4"])
def test_a_model_that_overflows_in_16_bits_decides_nothing(identifier: str) -> None:
    lost = ([0] * STEPS, [0] * STEPS, [float("nan")] * STEPS, [float("nan")] * STEPS, False, False)
    (one,) = judge_walk(identifier, walked(lambda number: lost, forced_kl=float("nan")))
    assert (one.verdict, "overflows in all" in one.why) == ("undecided", True)


def test_a_parting_at_the_boundary_is_told_from_one_anywhere() -> None:
    near, early = judge_walk(
        "N6",
        walked(
            lambda number: parting(number % STEPS, kl=0.1 * (STEPS - number % STEPS)), contexts=24
        ),
    )
    assert (near.verdict, early.verdict) == ("holds", "holds")
    assert near.estimate is not None
    assert near.estimate.mean == 0.5
    assert_says(near.why, "24 flips", "0.01 there", "4 at all steps")
    far, late = judge_walk(
        "N6",
        walked(
            lambda number: parting(number % STEPS, kl=0.1 * (number % STEPS + 1), margin=9.0),
            contexts=24,
        ),
    )
    assert (far.verdict, late.verdict) == ("does not hold", "does not hold")


def only_in(dtype: str, evidence: Evidence) -> Evidence:
    """The same evidence as if it had been walked in one type of numbers."""
    rows = evidence.tables[TABLE]
    return Evidence(evidence.records, tables={TABLE: rows[rows["dtype"] == dtype]})


def test_partings_are_read_in_bfloat16_only_where_float16_was_not_walked() -> None:
    def parted(number: int) -> Pair:
        return parting(number % STEPS)

    coarse = walked(parted, dtype="bfloat16", contexts=24)
    near, _ = judge_walk("N6", only_in("bfloat16", coarse))
    assert near.verdict == "holds"
    assert_says(near.why, "24 flips", "bfloat16")
    both = walked(lambda number: SAME)
    (why,) = {judgement.why for judgement in judge_walk("N6", both)}
    assert "none of 12 pairs" in why
    (share,) = judge_walk("N1", only_in("bfloat16", coarse))
    assert (share.verdict, share.why) == ("undecided", "nothing was walked in float16")


def test_early_partings_are_compared_with_late_ones_by_hand() -> None:
    """Twelve contexts, two at each step: the first third parts at 0 and 1, the last at 4 and 5."""
    _, early = judge_walk(
        "N6", walked(lambda number: parting(number % STEPS, kl=float(number % STEPS)))
    )
    assert early.estimate is not None
    assert early.estimate.mean == pytest.approx((0 + 1) / 2 - (4 + 5) / 2)


def test_what_nothing_tells_of_is_undecided_with_the_reason() -> None:
    (flips,) = {one.why for one in judge_walk("N6", walked(lambda number: SAME))}
    assert "none of 12 pairs" in flips
    (right,) = judge_walk("N4", walked(lambda number: SAME))
    assert_says(right.why, "at the threshold", "no number of contexts")
    assert_says(right.why, "0 right", "0 without", "of 12 pairs")
    for identifier in ("N4", "N6"):
        (missing,) = {one.why for one in judge_walk(identifier, Evidence(DataFrame({"task": []})))}
        assert_says(missing, "nothing was walked", str(TABLE))


def test_pairs_that_all_agree_have_the_interval_of_a_share() -> None:
    """None of 12 contexts differs: up to 1 - 0.025 ** (1 / 12) = 26 % of others may, by Clopper and
    Pearson."""
    (one,) = judge_walk("N2", walked(lambda number: SAME, dtype="float32"))
    assert one.estimate is not None
    assert one.estimate.mean == 0
    assert one.estimate.high == pytest.approx(1 - 0.025 ** (1 / 12), abs=0.02)


def test_two_flips_say_how_many_contexts_would_have_six() -> None:
    margin, early = judge_walk("N6", walked(lambda number: parting(number) if number < 2 else SAME))
    assert margin.why.startswith(
        "2 contexts: fewer than 6 decide nothing; --limit 36 may be enough; 2 flips"
    )
    assert_says(early.why, "2 flips", "--limit 36")


def test_an_end_of_one_answer_is_a_difference_without_a_margin() -> None:
    ended: Pair = ([1] * STEPS, [1] * 2, [1e-4] * 2, [4.0] * 2, True, True)
    (differs,) = judge_walk("N1", walked(lambda number: ended))
    assert differs.estimate is not None
    assert differs.estimate.mean == 1
    margin, early = judge_walk("N6", walked(lambda number: ended))
    assert "no margin is known" in margin.why
    assert "no divergence is known" in early.why


def test_its_experiment_is_the_suite_of_numerics_with_the_full_cache_alone() -> None:
    grid = build_grid(make_job(WALKED, limit=8, device="cpu"), len)
    assert [policy.name for policy in grid.policies] == ["full"]
    assert TABLE in grid.tables
    assert [(task.name, contexts) for task, contexts in grid.tasks] == [("base", 8), ("prose", 8)]


def test_types_of_numbers_and_ways_to_choose_are_for_its_experiment_alone() -> None:
    of_suite = {"dtypes": "fp16", "sampling": "greedy"}
    given: dict[str, Any] = {"limit": 8, "device": "cpu", "of_suite": of_suite}
    walks = build_grid(make_job(WALKED, **given), len).numerics
    assert (walks.dtypes, walks.sampling) == (("float16",), ("greedy",))
    build_grid(make_job(ERRORS, **given), len)  # which a run without numerics would refuse


def beside(table: str, rows: list[dict[str, Any]]) -> Evidence:
    """Evidence with another table, of a question of each context."""
    records = [
        {"task": "base", "question_id": f"q{number}", "draw_id": f"q{number}"}
        for number in range(12)
    ]
    return Evidence(DataFrame(records), tables={table: DataFrame(rows)})


def patched(by_rows: float, by_stream: float, at_flip: bool = True) -> list[dict[str, Any]]:
    """Twelve flips; the stream of the last of three layers recovers everything, as logits are
    computed from it."""
    left = {("residual", 0): 1 - by_stream, ("residual", 1): 1 - by_stream, ("residual", 2): 0.0}
    left |= {
        ("residual", -1): 0.0,
        ("keys and values", -1): 1 - by_rows,
        ("keys and values", 1): 1.0,
    }
    return [
        {
            "task": "base",
            "question_id": f"q{number}",
            "dtype": "float16",
            "rows": rows,
            "layer": layer,
        }
        | {"step": 2, "at_flip": at_flip, "kl": 0.1, "kl_patched": 0.1 * share}
        for number in range(12)
        for (rows, layer), share in left.items()
    ]


def grouped(amplified: float) -> list[dict[str, Any]]:
    """Twelve contexts in three layers. The first drifts the more the fewer share a head, which does
    not count."""
    drift = {
        1: [0.1, 0.001, 0.003],
        2: [0.05, 0.002, 0.003],
        4: [0.0, 0.001 * amplified, 0.003 * amplified],
    }
    return [
        {
            "task": "base",
            "question_id": f"q{number}",
            "dtype": "float16",
            "size": size,
            "hidden": hidden,
        }
        for number in range(12)
        for size, hidden in drift.items()
    ]


@pytest.mark.parametrize(("amplified", "verdict"), [(2.0, "holds"), (1.0, "does not hold")])
def test_sharing_heads_amplifies_where_drift_behind_the_first_layer_is_larger(
    amplified: float, verdict: str
) -> None:
    (one,) = judge([claims()["N5"]], {SHARED.name: beside(GROUPS, grouped(amplified))})
    assert one.estimate is not None
    assert one.estimate.mean == pytest.approx(amplified)
    note = f"drift by query heads to a head, of that with 1: 1.00 with 1, 1.25 with 2, {amplified:.2f} with 4"
    assert (one.verdict, one.why) == (verdict, note)


def test_a_model_that_shares_no_heads_does_not_meet_the_precondition() -> None:
    rows = [row for row in grouped(2.0) if row["size"] == 1]
    (one,) = judge([claims()["N5"]], {SHARED.name: beside(GROUPS, rows)})
    assert (one.is_met, "nothing is shared" in one.why) == (False, True)


@pytest.mark.parametrize(
    ("by_rows", "by_stream", "verdict"),
    [(0.95, 0.0, "holds"), (0.95, 0.9, "does not hold"), (0.0, 0.0, "does not hold")],
)
def test_patching_rows_is_held_against_patching_the_stream(
    by_rows: float, by_stream: float, verdict: str
) -> None:
    (one,) = judge_walk("N7", beside(PATCHES, patched(by_rows, by_stream)))
    assert one.verdict == verdict, one.why
    assert one.estimate is not None
    assert one.estimate.mean == pytest.approx(by_rows - by_stream)


def test_without_a_flip_there_is_nothing_to_localise() -> None:
    (one,) = judge_walk("N7", beside(PATCHES, patched(0.9, 0.0, at_flip=False)))
    assert one.verdict == "undecided"
    assert "none of 12 answers" in one.why
