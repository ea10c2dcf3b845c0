"""The table of losses below the scores of a run: for programs each cell, for people the worst task
in 80 columns."""

from typing import Any

import pytest

from leaderboards.pages.results import Results
from leaderboards.terminal.losses import loss_table
from tests.support.browsing.pages import printed, results_of
from tests.support.records.synthetic_records import frame, record
from tests.support.wording import assert_says

# What each policy loses of 80 % right by ratio, in each of the contexts of base; of hops nobody
# loses anything.
LOSSES = {
    "keydiff": {0.25: 0.0, 0.5: 0.0},
    "snapkv": {0.25: 0.0, 0.5: 60.0},
    "random": {0.25: 30.0, 0.5: 80.0},
}


def _records(contexts: int) -> list[dict[str, Any]]:
    made = []
    for task in ("base", "hops"):
        for place in range(contexts):
            here = {"task": task, "example_id": f"{task}-{place}"}
            made.append(record(**here, f1=80.0))
            made.append(record(**here, policy="int4", f1=80.0, kv_bytes=280))
            for policy, by_ratio in LOSSES.items():
                for ratio, loss in by_ratio.items():
                    f1 = 80.0 - loss * (task == "base")
                    made.append(
                        record(
                            **here, policy=policy, ratio=ratio, f1=f1, kv_bytes=1000 - 1000 * ratio
                        )
                    )
    return made


@pytest.fixture(scope="module")
def loss_results() -> Results:
    return results_of(frame(_records(72)))


def test_programs_get_each_policy_task_and_level_with_verdict_difference_and_interval(
    loss_results: Results,
) -> None:
    rows = loss_table(loss_results.rows, loss_results.standings, loss_results.tolerance).plain()
    by_cell = {(row["policy"], row["task"], row["level"]): row for row in rows}
    assert len(rows) == len(by_cell) == 3 * (2 * len(LOSSES) + 1), (
        "two tasks and what is over both; int4 has one level"
    )
    snapkv = by_cell["snapkv", "base", 0.5]
    assert (snapkv["verdict"], snapkv["difference"], snapkv["tolerance"]) == ("unsafe", -60, 5)
    assert snapkv["low"] <= -60 <= snapkv["high"] < -5
    assert (snapkv["contexts"], snapkv["worst_task"], snapkv["bytes_held"]) == (72, "base", None)
    over_tasks = by_cell["snapkv", "all", 0.5]
    assert (over_tasks["difference"], over_tasks["worst_task"]) == (-60, "base"), (
        "no mean: one task of two loses"
    )
    kept = by_cell["keydiff", "all", 0.5]
    assert (kept["verdict"], kept["difference"]) == ("safe", 0)
    assert kept["low"] == pytest.approx(-100 * (1 - 0.025 ** (1 / 72)))
    quantised = by_cell["int4", "base", 0.0]
    assert (quantised["verdict"], quantised["bytes_held"]) == ("safe", 28)


def test_people_get_the_worst_task_of_each_policy_in_80_columns(loss_results: Results) -> None:
    lines = printed(
        loss_table(loss_results.rows, loss_results.standings, loss_results.tolerance)
    ).splitlines()
    assert max(map(len, lines)) <= 80
    table = [line.split() for line in lines[3:]]
    assert table == [
        ["int4", "28", "%", "held", "safe", "0", "[−4.99,", "+5]", "base", "72"],
        ["keydiff", "0.25", "safe", "0", "[−4.99,", "+5]", "base", "72"],
        ["0.5", "safe", "0", "[−4.99,", "+5]", "base", "72"],
        ["snapkv", "0.25", "safe", "0", "[−4.99,", "+5]", "base", "72"],
        ["0.5", "unsafe", "−60", "[−61,", "−57]", "base", "72"],
        ["random", "0.25", "unsafe", "−30", "[−32,", "−27]", "base", "72"],
        ["0.5", "unsafe", "−80", "[−81,", "−76]", "base", "72"],
    ]


def test_of_many_levels_those_that_decide_are_printed() -> None:
    """Nothing is lost up to 0.3, 20 points from 0.6 on: the highest that is safe, and the lowest
    that is not."""
    made = []
    for place in range(72):
        here = {"example_id": f"base-{place}"}
        made.append(record(**here, f1=80.0))
        made += [
            record(**here, policy="snapkv", ratio=step / 10, f1=80.0 - 20 * (step > 5))
            for step in range(1, 10)
        ]
    results = results_of(frame(made))
    lines = printed(loss_table(results.rows, results.standings)).splitlines()[3:]
    assert [line.removeprefix("snapkv").split()[:2] for line in lines] == [
        ["0.5", "safe"],
        ["0.6", "unsafe"],
    ]


def test_a_task_that_the_model_cannot_do_has_losses_and_a_reason_in_the_place_of_verdicts() -> None:
    """The lowest and the highest of three levels are printed: which would decide is a verdict
    too."""
    made = [
        record(example_id=f"base-{place}", policy=policy, ratio=ratio, f1=45.0 - 40 * ratio)
        for place in range(12)
        for policy, ratio in (("full", 0.0), ("snapkv", 0.25), ("snapkv", 0.5), ("snapkv", 0.75))
    ]
    results = results_of(frame(made))
    table = loss_table(results.rows, results.standings)
    row = table.plain()[0]
    assert (row["policy"], row["level"], row["verdict"], row["difference"]) == (
        "snapkv",
        0.25,
        None,
        -10,
    )
    assert row["low"] < row["difference"] < row["high"]
    assert_says(row["reason"], "45 % right", "below 50")
    text = printed(table)
    assert row["reason"] in " ".join(text.split())
    assert [line.removeprefix("snapkv").split()[:2] for line in text.splitlines()[4:]] == [
        ["0.25", "−10"],
        ["0.75", "−30"],
    ]
