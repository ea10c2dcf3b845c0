"""The command that a site tells of a run makes that run again: parsed, it comes to the same
identity."""

import json
import shlex
from pathlib import Path

import pytest

from kvbench.cli.program import main
from kvbench.execution.execute import Executor
from kvbench.publish.method import run_entry
from kvbench.store.run_file import Job, RunFile
from kvbench.store.tables import SCHEMA_VERSION
from kvbench.system.errors import KVBenchError
from leaderboards.pages.method import RunEntry
from tests.support.tasks.samples_of_ifeval import SPLIT

PRESS = (
    "from dataclasses import dataclass\nfrom kvpress import KnormPress\n"
    "@dataclass\nclass MyPress(KnormPress):\n    floor: float = 0.0\n"
)


class PlannedError(KVBenchError):
    """Raised where a run would begin."""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[RunFile]:
    """Collects what commands would run; nothing is run."""
    runs: list[RunFile] = []

    def complete(executor: Executor, folder: Path, look: object = None) -> None:
        runs.append(
            RunFile(
                schema_version=SCHEMA_VERSION,
                status="complete",
                reason=None,
                created="",
                finished=None,
                command="",
                job=executor.job,
                identity=executor.identity,
            )
        )
        raise PlannedError("planned")

    monkeypatch.setattr("kvbench.execution.execute.complete", complete)
    return runs


def again(run: RunFile) -> RunEntry:
    """Tells how to make a run again, once it was written and read."""
    return run_entry("again", RunFile.model_validate_json(run.model_dump_json()))


def plan(planned: list[RunFile], words: list[str], monkeypatch: pytest.MonkeyPatch) -> RunFile:
    planned.clear()
    monkeypatch.setattr("sys.argv", ["kvbench", *words])
    assert main(words) == 1
    assert planned, f"{words} plans nothing"
    return planned[0]


@pytest.mark.parametrize(
    "words",
    [
        "run",
        "run --tasks base,all(prefix=on) --budgets 16,64 --limit 3 --seed 7 --observe attention",
        "run --tasks long_context(depth=0.25) --context-tokens 600 --limit 2 --policies knorm",
        "run --tasks base --mode aware --policies finch --ratios 0.5 --limit 1 --dtype bfloat16",
        "run --suite instructions --policies keydiff+fair --limit 6 --ratios 0.4",
        "run --tasks instructions --mode agnostic(compress=system) --policies knorm --limit 1",
        "run --suite numerics(dtypes=[bf16,fp32],sampling=greedy,deterministic=no) --limit 1",
        "run --tasks ifeval(data=rows.jsonl,defence=both) --policies snapkv --ratios 0.5 --limit 1",
        "run --tasks base --policies mine.py:MyPress(floor=0.1),snapkv --limit 1 --ratios 0.5",
        "compare random --tasks base --limit 1 --against full,knorm --repeats 2",
        "compare mine.py:MyPress --tasks base --limit 1 --against random,full --budgets 32",
    ],
)
def test_the_command_of_a_run_comes_to_the_same_identity(
    toy_folder: Path,
    tmp_path: Path,
    planned: list[RunFile],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PRESS)
    Path("rows.jsonl").write_text(json.dumps(SPLIT) + "\n")
    if "ifeval" in words:
        pytest.importorskip("lm_eval")
        monkeypatch.setattr("kvbench.experiments.build_grid.check_judges", lambda tasks, mode: None)
    first = plan(planned, [*words.split(), "--model", str(toy_folder)], monkeypatch)
    told = again(first)
    assert told.unknown == ()
    command = shlex.split(told.command)
    assert command[:3] == ["python", "-m", "kvbench"]
    second = plan(planned, command[3:], monkeypatch)
    assert not second.identity.differences(first.identity)


def test_other_bounds_make_no_other_run_and_are_told_again(
    toy_folder: Path, planned: list[RunFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", "--tasks", "base", "--limit", "1", "--model", str(toy_folder)]
    first = plan(planned, words, monkeypatch)
    second = plan(
        planned, [*words, "--max-kv-gb", "0.5", "--executor", "local(cell_seconds=7)"], monkeypatch
    )
    assert not second.identity.differences(first.identity)
    again_words = shlex.split(again(second).command)
    assert again_words[again_words.index("--executor") + 1] == "local(cell_seconds=7.0)"
    assert again_words[again_words.index("--max-kv-gb") + 1] == "0.5"
    assert "--max-kv-gb" not in again(first).command


def test_hostile_names_are_one_word_of_the_command(
    toy_folder: Path, planned: list[RunFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(planned, ["run", "--tasks", "base", "--model", str(toy_folder)], monkeypatch)
    hostile = "x; rm -rf ~ $(true) `true` '\n"
    words = shlex.split(again(run.model_copy(update={"job": Job(model=hostile)})).command)
    assert words[words.index("--model") + 1] == hostile
