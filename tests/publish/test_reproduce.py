"""The command that is told of a run makes that run again: parsed, it comes to the same identity."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.program import main
from kvbench.experiments.grid import Grid
from kvbench.experiments.identify import Identity
from kvbench.models.load import LoadedModel
from kvbench.publish.reproduce_command import Reproduction, reproduction
from kvbench.run.executor import Executor
from kvbench.store.store import RunFile
from kvbench.store.tables import SCHEMA_VERSION
from kvbench.system.errors import KVBenchError
from policies import POLICIES
from tests.support.samples_of_ifeval import SPLIT

PRESS = "from kvpress import KnormPress\nclass MyPress(KnormPress):\n    pass\n"


class PlannedError(KVBenchError):
    """Raised where a run would begin, with what it was asked to be."""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the last command set out to do; nothing is run."""
    found: dict[str, Any] = {}

    def begin(identity: Identity, command: str) -> None:
        found.update(identity=identity.model_dump(mode="json"), command=command)
        raise PlannedError("planned")

    def run(executor: Executor, folder: Path, command: str) -> None:
        begin(executor.identity, command)

    def compare(model: LoadedModel, grid: Grid, folder: Path, command: str) -> None:
        begin(grid.identity(model), command)

    monkeypatch.setattr("kvbench.run.execute.complete", run)
    monkeypatch.setattr("kvbench.run.execute.execute", compare)
    return found


def again(found: dict[str, Any]) -> Reproduction:
    run = RunFile(
        schema_version=SCHEMA_VERSION,
        status="complete",
        reason=None,
        created="",
        finished=None,
        command=found["command"],
        identity=found["identity"],
    )
    return reproduction(run, list(POLICIES))


def plan(planned: dict[str, Any], words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    planned.clear()
    monkeypatch.setattr("sys.argv", ["kvbench", *words])
    assert main(words) == 1
    assert planned, f"{words} plans nothing"
    return dict(planned)


@pytest.mark.parametrize(
    "words",
    [
        "run",
        "run --tasks base,hops --policies snapkv,knorm --ratios 0.3,0.95 --limit 2",
        "run --tasks hops --policies think,full --ratios 0,0.3,0.9 --limit 1 --seed 7",
        "run --tasks base --budgets 16,64 --limit 3 --phrasings held-out --max-new-tokens 9",
        "run --tasks base,arithmetic --profile paper --policies tova --ratios 0.5",
        "run --tasks long_context --context-tokens 600 --limit 2 --policies knorm",
        "run --tasks long_context --context-tokens 600 --depth 0.25 --limit 2 --policies knorm",
        "run --tasks base --mode aware --policies finch --ratios 0.5 --limit 1 --dtype bfloat16",
        "run --tasks instructions --compress system --policies snapkv+whitelist --ratios 0.5 --limit 1",
        "run --suite instructions --policies keydiff+fair --limit 6 --ratios 0.4",
        "run --tasks ifeval --data rows.jsonl --defence both --policies snapkv --ratios 0.5 --limit 1",
        "run --tasks base --policies mine.py:MyPress(compression_ratio=0.1),snapkv --limit 1 --ratios 0.5",
        "compare knorm --tasks base --limit 1 --against snapkv,tova",
        "compare mine.py:MyPress --tasks base --limit 1 --against random,full --budgets 32",
    ],
)
def test_the_command_of_a_run_comes_to_the_same_identity(
    toy_folder: Path, tmp_path: Path, planned: dict[str, Any], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PRESS)
    Path("rows.jsonl").write_text(json.dumps(SPLIT) + "\n")
    if "ifeval" in words:
        pytest.importorskip("lm_eval")
        monkeypatch.setattr("kvbench.experiments.job.check_judges", lambda tasks, mode: None)
    first = plan(planned, [*words.split(), "--model", str(toy_folder)], monkeypatch)
    told = again(first)
    assert told.unknown == ()
    command = shlex.split(told.command)
    assert command[:3] == ["python", "-m", "kvbench"]
    second = plan(planned, command[3:], monkeypatch)
    assert second["identity"] == first["identity"]


def test_what_the_identity_does_not_tell_is_said(
    toy_folder: Path, tmp_path: Path, planned: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a press was taken from is known from the command as it was typed, which may be anything."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PRESS)
    words = ["run", "--tasks", "base", "--policies", "mine.py:MyPress", "--model", str(toy_folder)]
    told = again({**plan(planned, words, monkeypatch), "command": "by hand"})
    assert "FILE.py:MyPress" in told.command
    assert told.unknown == ("MyPress is no policy of kvbench: put the file that it is in for FILE.py",)


def test_hostile_names_are_one_word_of_the_command(
    toy_folder: Path, planned: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan(planned, ["run", "--tasks", "base", "--model", str(toy_folder)], monkeypatch)
    found["identity"]["model"] = "x; rm -rf ~ $(true) `true` '\n"
    words = shlex.split(again(found).command)
    assert words[words.index("--model") + 1] == found["identity"]["model"]
