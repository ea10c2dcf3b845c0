"""The claims about numerics, on made-up pairs of answers where the truth is known."""

from collections.abc import Callable

import pytest
from pandas import DataFrame

from kvbench.commands.claims import job_of
from kvbench.experiments.build_grid import build_grid
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.numerics import WALKED
from leaderboards.claims.verdict import Judgement, judge
from leaderboards.studies.numerics.pairs import TABLE

STEPS = 6
Pair = tuple[list[int], list[int], list[float], bool, bool]  # tokens of both, KL, right of both
SAME: Pair = ([1] * STEPS, [1] * STEPS, [1e-4] * STEPS, True, True)


def parting(step: int, right: tuple[bool, bool] = (True, True)) -> Pair:
    return [1] * STEPS, [1] * step + [2] * (STEPS - step), [1e-4] * STEPS, *right


def walked(
    free: Callable[[int], Pair], forced_kl: float = 1e-4, contexts: int = 12, dtype: str = "float16"
) -> Evidence:
    """A question of each context: the free-running pair of its number, and a teacher-forced one."""
    rows, records = [], []
    for number in range(contexts):
        question = {"task": "base", "question_id": f"base/{number}/0"}
        records.append(question | {"draw_id": f"base/{number}"})
        for name in {dtype, "bfloat16", "float32"}:
            tokens, other, kl, right, other_right = free(number) if name == dtype else SAME
            common = question | {"dtype": name, "sampling": "greedy", "draw": 0, "pair": "cache"}
            lists = {"tokens": tokens, "other_tokens": other, "kl": kl}
            rows.append(common | lists | {"regime": "free-running", "right": right, "other_right": other_right})
            forced = {"tokens": [1] * STEPS, "other_tokens": [1] * STEPS, "kl": [forced_kl] * STEPS}
            rows.append(common | forced | {"regime": "teacher-forced", "right": None, "other_right": None})
    return Evidence(DataFrame(records), tables={TABLE: DataFrame(rows)})


def judged(identifier: str, evidence: Evidence) -> list[Judgement]:
    return judge([claims()[identifier]], {WALKED.name: evidence})


@pytest.mark.parametrize(
    ("identifier", "evidence", "verdict"),
    [
        ("N1", walked(lambda number: parting(number % STEPS)), "holds"),
        ("N1", walked(lambda number: SAME), "does not hold"),
        ("N1", walked(lambda number: parting(2) if number % 2 else SAME), "does not hold"),
        ("N2", walked(lambda number: parting(3), dtype="float32"), "does not hold"),
        ("N2", walked(lambda number: SAME, dtype="float32", contexts=60), "holds"),
        ("N2", walked(lambda number: SAME, dtype="float32", contexts=12), "undecided"),
        ("N3", walked(lambda number: SAME, forced_kl=11.0), "holds"),
        ("N3", walked(lambda number: SAME, forced_kl=6e-3), "does not hold"),
        ("N4", walked(lambda number: parting(1, right=(number % 4 < 3, False))), "holds"),
        ("N4", walked(lambda number: parting(1, right=(False, number % 4 < 3))), "does not hold"),
        ("N4", walked(lambda number: SAME), "undecided"),
    ],
)
def test_verdicts_where_the_truth_is_known(identifier: str, evidence: Evidence, verdict: str) -> None:
    (one,) = judged(identifier, evidence)
    assert one.verdict == verdict, one.why


def test_what_nothing_tells_of_is_undecided_with_the_reason() -> None:
    (one,) = judged("N4", walked(lambda number: SAME))
    assert one.why == "all 12 pairs of answers are right, or wrong, together"
    (one,) = judged("N4", Evidence(DataFrame({"task": []})))
    assert TABLE in one.why


def test_an_end_of_one_answer_is_a_difference() -> None:
    ended: Pair = ([1] * STEPS, [1] * 2, [1e-4] * 2, True, True)
    (differs,) = judged("N1", walked(lambda number: ended))
    assert differs.verdict == "holds"


def test_its_experiment_is_the_suite_of_numerics_with_the_full_cache_alone() -> None:
    grid = build_grid(job_of(WALKED, "reference", 8, 0, "cpu", "auto"), len)
    assert [policy.name for policy in grid.setting.policies] == ["full"]
    assert TABLE in grid.setting.tables
    assert [(task.name, contexts) for task, contexts in grid.tasks] == [("base", 8), ("prose", 8)]
