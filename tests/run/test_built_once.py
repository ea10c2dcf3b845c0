"""A run builds its grid once and loads its model once, whatever its options leave open."""

from typing import Any

import pytest

import kvbench.execution.local
from datasets_gen import Task
from kvbench.checks import mastery
from kvbench.checks.mastery import Mastery
from kvbench.experiments import build_grid
from kvbench.models.load import LoadedModel
from kvbench.models.opening import open_model
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from tests.support.models.runs import CommandLine


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that are loaded from now on."""
    names: list[str] = []

    def counted(name: str, *options: Any) -> LoadedModel:
        names.append(name)
        return open_model(name, *options)

    monkeypatch.setattr(kvbench.execution.local, "open_model", counted)
    return names


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """Mode and levels of the jobs whose grids are built from now on. Every grid begins with the
    tasks of its job."""
    jobs: list[tuple[str, str | None]] = []
    prepare = build_grid._prepare_tasks

    def counted(job: Job, *options: Any) -> list[Task]:
        jobs.append((job.mode, job.difficulty))
        return prepare(job, *options)

    monkeypatch.setattr(build_grid, "_prepare_tasks", counted)
    return jobs


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks whose levels are looked for from now on: each is mastered at level 2."""
    tasks: list[str] = []

    def found(_: LoadedModel, task: Task, *options: int) -> Mastery:
        tasks.append(task.name)
        return Mastery(task.name, 2, 5, "Right", 80.0, 16.0, 24, None)

    monkeypatch.setattr(mastery, "highest_mastered", found)
    return tasks


def small_run(cli: CommandLine, *more: object) -> None:
    words = cli.words("--tasks", "base", "--every-task", *more)
    assert cli(*words) == 0, cli.err


def test_both_modes_load_the_model_once_and_build_a_grid_each(
    cli: CommandLine, loads: list[str], builds: list[tuple[str, str | None]]
) -> None:
    small_run(cli, "--mode", "both")
    assert loads == [str(cli.model)]
    assert builds == [("agnostic", None), ("aware", None)]
    modes = [Store.open(cli.folder / "runs" / name).identity.mode for name in ("x", "x-aware")]
    assert modes == ["agnostic", "aware"]


def test_levels_of_both_modes_are_found_once_with_the_model_that_answers(
    cli: CommandLine,
    loads: list[str],
    builds: list[tuple[str, str | None]],
    searches: list[str],
) -> None:
    small_run(cli, "--mode", "both", "--difficulty", "auto")
    assert (loads, searches) == ([str(cli.model)], ["base"])
    first, second = [job for job in builds if job[1] == "base=2"]
    assert (first[0], second[0]) == ("agnostic", "aware"), "each is built once at its levels"
    for name in ("x", "x-aware"):
        (task,) = Store.open(cli.folder / "runs" / name).identity.tasks
        assert task.level == "2 of 5"


def test_a_run_that_goes_on_takes_its_levels_and_builds_one_grid(
    cli: CommandLine,
    loads: list[str],
    builds: list[tuple[str, str | None]],
    searches: list[str],
) -> None:
    small_run(cli, "--difficulty", "base=1")
    loads.clear()
    builds.clear()
    small_run(cli, "--difficulty", "auto")
    assert builds == [("agnostic", "base=1")]
    assert (loads, searches) == ([str(cli.model)], [])
