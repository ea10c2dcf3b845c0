"""What leads a task, and whether a model can do it: one rule, and what follows from it on every
board."""

from typing import Any

import pandas as pd
import pytest

from leaderboards.aggregate.leading_measures import (
    DIRECTIVES,
    QUESTIONS,
    TEXT,
    find_lead,
    first_shown,
    not_mastered,
    obeyed_by_silence,
    unmastered_line,
)
from leaderboards.aggregate.row import (
    ALL_TASKS,
    DELTA_NLL,
    LEAKAGE,
    OBEYED,
    RIGHT,
    UNANSWERED,
    WRONG_OF_ANSWERED,
    SummaryRow,
)
from leaderboards.aggregate.summary import PlannedCells, summarise
from leaderboards.boards.area_under_curve import AREA, BEATS, Area, Unjudged
from leaderboards.boards.board import all_standings
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_RATIO, difference_text
from leaderboards.pages.sections import section_note
from leaderboards.statistics.bootstrap import Blank
from leaderboards.terminal.table import telling
from policies import at_ratios
from policies.declaration.names import FULL
from tests.support.browsing.pages import results_of
from tests.support.records.synthetic_profiles import value
from tests.support.records.synthetic_records import frame, realistic_records, record, summary_row
from tests.support.wording import assert_says

POLICIES = ["full", "random", "recency", "snapkv", "knorm"]


def full(**changes: Any) -> SummaryRow:
    return summary_row("full", 0.0, **changes)


def test_where_a_task_has_directives_these_lead_and_not_what_is_right() -> None:
    assert find_lead(full(right=0.9)) is QUESTIONS
    assert find_lead(full(right=0.9, directives_obeyed=0.8)) is DIRECTIVES
    assert find_lead(full(right=None, next_token_accuracy=0.4)) is TEXT
    assert find_lead(None) is QUESTIONS
    rows = [
        full(right=0.9),
        full(task="instructions", right=0.9, directives_obeyed=0.8),
        summary_row("snapkv"),
    ]
    leads = {row.task: find_lead(row) for row in rows if row.policy == FULL and not row.mean_of}
    assert leads == {"base": QUESTIONS, "instructions": DIRECTIVES}


@pytest.mark.parametrize(
    ("row", "chance", "mastered"),
    [
        (full(right=0.5), None, True),
        (full(right=0.499), None, False),
        (full(right=0.699), 50.0, False),
        (full(right=0.7), 50.0, True),
        (full(right=0.1, directives_obeyed=0.5), 50.0, True),
        (full(right=0.9, directives_obeyed=0.49), None, False),
        (full(right=None, reason="not run yet"), 5.0, True),
        (None, 5.0, True),
        (full(right=None, next_token_accuracy=0.2), None, True),
        (full(right=None, next_token_accuracy=0.326), 12.6, True),
        (full(right=None, next_token_accuracy=0.325), 12.6, False),
    ],
)
def test_a_model_can_do_a_task_by_what_the_full_cache_reaches(
    row: SummaryRow | None, chance: float | None, mastered: bool
) -> None:
    reason = not_mastered(row, chance)
    assert (reason is None) == mastered
    assert mastered or (reason or "").startswith("the model itself has ")


def test_silence_obeys_what_the_checkers_say_and_a_model_has_to_do_better() -> None:
    """Of the directives of two questions "I don't know" obeys one of two, and both."""
    asked = [["avoid Concert", "upper"], ["avoid Mills", "avoid Maple"]]
    records = frame(
        [record(task="instructions", question_id=str(number), directives=own, directives_obeyed=0.9)
         for number, own in enumerate(asked)]
    )  # fmt: skip
    assert obeyed_by_silence(records) == {("instructions", "agnostic"): pytest.approx(75)}
    (row,) = [row for row in summarise(records, resamples=20) if row.task == "instructions"]
    assert row.obeyed_by_silence == pytest.approx(75)
    assert_says(row.not_mastered, "90 %", "below 95", "silence obeys 75")
    assert not_mastered(full(directives_obeyed=0.9), silence=13.0) is None


def failing_at_hops() -> pd.DataFrame:
    """Every third answer about hops is right, with the full cache as with any other."""

    def weak(one: dict[str, Any]) -> dict[str, Any]:
        if one["task"] != "hops" or int(one["question_id"]) == 0:
            return one
        wrong = {
            "f1": 0.0,
            "em": 0.0,
            "abstained": False,
            "hallucinated": True,
            "output_text": "Lima \u202e",
        }
        return one | wrong | {"right": False, "answered": True}

    return realistic_records(policies=POLICIES, ratios=[0.5, 0.9], contexts=12, change=weak)


def test_a_task_that_the_model_cannot_do_has_numbers_without_verdicts_and_enters_no_mean_unless_asked() -> (
    None
):
    records = failing_at_hops()
    rows = summarise(records, resamples=200)
    by_cell = {(row.task, row.policy, row.level): row for row in rows}
    reason = by_cell["hops", "snapkv", 0.5].not_mastered
    assert reason is not None
    assert by_cell["base", "snapkv", 0.5].not_mastered is None
    overall, base = by_cell[ALL_TASKS, "snapkv", 0.5], by_cell["base", "snapkv", 0.5]
    assert (overall.mean_of, overall.right, overall.n) == (("base",), base.right, base.n)
    found = {
        (task, one.policy): one
        for (_, task), own in all_standings(records, rows).items()
        for one in own
    }
    hops = found["hops", "snapkv"]
    assert hops[RANK] == Blank(reason)
    assert isinstance(hops[AREA], Area)
    safe = SAFE_RATIO.board_cell(hops[SAFE_RATIO])
    assert (safe.text, safe.sort, safe.reason) == ("at 0.5", None, "")
    assert safe.detail == difference_text(value(hops[SAFE_RATIO]).levels[0].difference)
    assert SAFE_RATIO.download(hops[SAFE_RATIO])["safe_ratio_reason"] == reason
    for measure in BEATS:
        line = hops[measure]
        assert isinstance(line, Unjudged)
        columns = measure.download(line)
        assert columns[f"{measure.name}_difference"] == line.difference.mean
        assert columns[f"{measure.name}_verdict"] is columns[f"{measure.name}_p"] is None
        assert columns[f"{measure.name}_reason"] == reason
        cell = measure.board_cell(line)
        assert (cell.text, cell.tone, cell.reason) == (line.difference.text, "", "")
    assert not any(row.best_in or row.tied_in for row in rows if row.task == "hops")
    assert found[ALL_TASKS, "snapkv"][AREA] == found["base", "snapkv"][AREA]
    plan = {policy: at_ratios([0.0] if policy == "full" else [0.5, 0.9]) for policy in POLICIES}
    asked = summarise(
        records,
        PlannedCells("agnostic", {"base": 12, "hops": 12}, plan, every_task=True),
        resamples=200,
    )
    both = next(
        row for row in asked if (row.task, row.policy, row.level) == (ALL_TASKS, "snapkv", 0.5)
    )
    assert both.mean_of == ("base", "hops")
    assert both.right == pytest.approx((base.right + by_cell["hops", "snapkv", 0.5].right) / 2)


def test_beside_a_task_that_the_model_cannot_do_all_means_ranks_and_headlines_are_as_without_it() -> (
    None
):
    records = failing_at_hops()
    alone = records[records["task"] == "base"]
    with_hops, without = summarise(records, resamples=100), summarise(alone, resamples=100)
    overall, expected = (
        [row for row in rows if row.task == ALL_TASKS] for rows in (with_hops, without)
    )
    assert overall == expected
    standings = [all_standings(*one) for one in ((records, with_hops), (alone, without))]
    for task in (ALL_TASKS, "base"):
        assert standings[0]["agnostic", task] == standings[1]["agnostic", task]
    assert telling(with_hops) == telling(without)
    assert first_shown(ALL_TASKS, overall) == (RIGHT,)


def test_a_run_of_such_tasks_alone_has_means_over_all_of_them_and_the_rise_of_the_likelihood_leads() -> (
    None
):
    """A third of the questions of hops is right, and none of those of base."""
    records = failing_at_hops().assign(gold_nll=1.5, delta_nll=0.25)
    wrong = {"right": False, "f1": 0.0, "hallucinated": True, "answered": True, "abstained": False}
    base = records["task"] == "base"
    records.loc[base, list(wrong)] = list(wrong.values())
    rows = summarise(records, resamples=50)
    by_cell = {(row.task, row.policy, row.level): row for row in rows}
    overall = [row for row in rows if row.task == ALL_TASKS]
    itself = 100 * by_cell["hops", FULL, 0.0].right / 2
    reason = f"the model itself has {itself:.0f} % over these tasks, and can do none of them"
    assert {(row.not_mastered, row.complete) for row in overall} == {(reason, True)}
    assert {row.mean_of for row in overall} == {("base", "hops")}
    assert by_cell[ALL_TASKS, "snapkv", 0.5].right == by_cell["hops", "snapkv", 0.5].right / 2
    assert {row.delta_nll for row in overall} == {0.25}
    assert not any(row.best_in or row.tied_in for row in rows)
    assert (
        first_shown(ALL_TASKS, overall)[:2] == first_shown("hops", rows)[:2] == (DELTA_NLL, RIGHT)
    )
    assert telling(rows) == [DELTA_NLL, RIGHT, WRONG_OF_ANSWERED, UNANSWERED]
    of_all = {one.policy: one for one in all_standings(records, rows)["agnostic", ALL_TASKS]}
    assert of_all["snapkv"][RANK] == Blank(reason)
    assert isinstance(of_all["snapkv"][AREA], Area)


def test_where_no_likelihood_was_measured_nothing_says_that_it_leads() -> None:
    """A model obeys 40 % of the directives of its system prompts, and half of the secret leaks."""
    asked: dict[str, Any] = {"task": "instructions", "f1": None, "right": None, "golds": []}
    made = [
        one
        for place in range(8)
        for policy, ratio in ((FULL, 0.0), ("snapkv", 0.5))
        for one in (
            record(**asked, policy=policy, ratio=ratio, example_id=f"x-{place}", directives_obeyed=0.4),
            record(**asked, policy=policy, ratio=ratio, example_id=f"x-{place}", question_id="1",
                   leakage=0.5, defence_leakage=0.5, protected="a secret"),
        )
    ]  # fmt: skip
    results = results_of(frame(made), "toy")
    rows = [row for row in results.rows if row.task == "instructions"]
    assert first_shown("instructions", rows) == (OBEYED, LEAKAGE)
    note = section_note(results, "instructions")
    assert note.startswith(
        "The model itself has 40 % of directives obeyed, below 50: numbers are shown"
    )
    assert "NLL" not in note
    assert telling(results.rows) == [OBEYED, LEAKAGE]


def test_what_is_not_mastered_is_told_in_a_line_with_what_to_run_instead() -> None:
    line = unmastered_line(summarise(failing_at_hops(), resamples=50))
    assert line.startswith(
        "Not mastered, so without ranks and verdicts: hops (the model itself has "
    )
    assert all(
        hint in line
        for hint in ("--difficulty auto", "niah_single_2", "prose", "show RUN --policy full")
    )
    assert unmastered_line([]) == ""
