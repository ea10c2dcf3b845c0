"""The suite of the board: no method is forgotten, and its runs can be started."""

import shlex
from pathlib import Path

import pytest

from kvbench.experiments.arguments import job_values
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.catalogue import choose_policies
from kvbench.store.run_file import Job
from kvbench.studies.board.suite import FOR_QUESTIONS, LEFT_OUT, METHODS, SUITE
from policies import POLICIES

RUNS = Path(__file__).parents[2] / "docs" / "board" / "runs.txt"
CONTROLS = {name for name, policy in POLICIES.items() if policy.family == "control"}


def test_each_registered_method_is_on_the_board_or_left_out_with_a_reason() -> None:
    evicting = {name for name in POLICIES if name not in CONTROLS}
    on_board = {*METHODS, *FOR_QUESTIONS}
    assert evicting - on_board == {*LEFT_OUT} - {*FOR_QUESTIONS}
    assert not {*LEFT_OUT} & {*METHODS}
    assert all(len(reason) > 20 for reason in LEFT_OUT.values())


def test_the_board_has_forty_methods_that_differ() -> None:
    policies = choose_policies(SUITE.policies, SUITE.tasks, "agnostic", of_suite=True)
    assert len({policy.name for policy in policies}) == len(METHODS) >= 40
    assert SUITE.limit == 24


def read_runs() -> dict[str, dict[str, str]]:
    """The options of each run of the board, by its name."""
    runs: dict[str, dict[str, str]] = {}
    for line in RUNS.read_text(encoding="utf-8").splitlines():
        name, *words = shlex.split(line)
        runs[name] = dict(zip(words[::2], words[1::2], strict=True))
    return runs


@pytest.mark.parametrize("name", read_runs())
def test_a_run_of_the_board_takes_options_that_make_sense(name: str) -> None:
    given: dict[str, str | None] = {
        option.strip("-").replace("-", "_"): text for option, text in read_runs()[name].items()
    }
    assert name.split("-")[0] == read_runs()[name]["--model"].split("-")[0]
    given |= {"model": "reference", "mode": given.get("mode", "agnostic")}
    given["tasks"] = given.get("tasks")
    job = Job.of(job_values(given))
    grid = build_grid(job, lambda text: len(text) // 4)
    assert {contexts for _, contexts in grid.tasks} == {24}
    assert {point.level.value for point in grid.points if point.level.value} == {0.5, 0.75, 0.9}
    asked = {policy.name for policy in grid.policies} - CONTROLS
    assert len(asked) >= (6 if job.mode == "aware" else 10)
