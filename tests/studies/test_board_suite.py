"""The suite of the board: no method is forgotten, and its runs can be started."""

import pytest

from docs.scripts.board import BoardRun, read_plan
from kvbench.experiments.arguments import job_values
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.catalogue import choose_policies
from kvbench.store.run_file import Job
from kvbench.studies.board.suite import FOR_QUESTIONS, LEFT_OUT, METHODS, SUITE
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS, contexts_that_agree
from policies import POLICIES

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


@pytest.mark.parametrize("run", read_plan(), ids=lambda run: run.name)
def test_a_run_of_the_board_takes_options_that_make_sense(run: BoardRun) -> None:
    words = iter(run.options)
    given: dict[str, str | None] = {
        option.strip("-").replace("-", "_"): text for option, text in zip(words, words, strict=True)
    }
    assert run.name.startswith(str(given["model"]))
    given |= {"model": "reference", "suite": "board", "policies": ",".join(run.methods)}
    given.setdefault("mode", "agnostic")
    if run.task != "instructions":
        given["policies"] = ",".join(name for name in run.policies if name not in CONTROLS)
    levels = {"ratio": given["ratios"]} if "ratios" in given else {}
    job = Job.of({**job_values(given), "levels": levels})
    # A token is a character: of longer ones the texts of Python have fewer contexts than of SmolLM2.
    grid = build_grid(job, len)
    ((task, contexts),) = grid.tasks
    ratios = {point.level.value for point in grid.points if point.level.value}
    assert task.name == run.task
    assert {policy.name for policy in grid.policies} == {*run.policies}
    methods = {*run.policies} - CONTROLS
    if "limit" in given:  # as many as can show that a method which loses nothing is safe
        assert contexts >= contexts_that_agree(TOLERATED_LOSS / 100)
        assert 0.5 in ratios
        assert len(methods) >= 6
    else:
        assert (contexts, ratios) == (24, {0.5, 0.75, 0.9})
        assert len(methods) >= (6 if run.mode == "aware" else 10)


def test_the_plan_asks_each_task_of_a_model_once() -> None:
    names = [run.name for run in read_plan()]
    assert len(names) == len({*names})
