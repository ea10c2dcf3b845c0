"""Runs of the toy model, from Python and from the command line, and what they come to."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import kvbench.execution.execute
import kvbench.experiments.collect
from datasets_gen import TASKS, Example, Task
from kvbench.cli.program import COMMANDS, application, main
from kvbench.engine.time_limit import NumericsOptions
from kvbench.estimate.cost import RunCost
from kvbench.estimate.decoder import DecoderShape
from kvbench.estimate.plan import make_plan
from kvbench.execution.execute import check_first_contexts, complete
from kvbench.execution.local import LocalExecutor
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.prompts.context_length import count_by
from kvbench.prompts.mode import Mode
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.store.tables import Record, RowsByTable
from policies import POLICIES, Level, at_ratios, list_points

SHORT = 6  # tokens of an answer


def execute(model: LoadedModel, planned: Grid, folder: Path, command: str) -> Store:
    """Runs what is missing of a grid, in this process."""
    check_first_contexts(model, planned)
    return complete(LocalExecutor(model, planned), folder, command)


def grid(
    policies: Sequence[str] = ("full", "random", "knorm"),
    ratios: Sequence[float] = (0.5,),
    tasks: Sequence[str] = ("base",),
    contexts: int = 2,
    seed: int = 0,
    mode: Mode = "agnostic",
    budgets: Sequence[int] = (),
    tables: tuple[str, ...] = (),
    repeats: int = 1,
    numerics: NumericsOptions = NumericsOptions(),  # noqa: B008 - it is frozen
) -> Grid:
    levels = [
        *(point.level for point in at_ratios(ratios)),
        *(Level("budget", float(budget)) for budget in budgets),
    ]
    points = list_points(levels, repeats)
    chosen = [POLICIES[name] for name in policies]
    return Grid(
        [(replace(TASKS[name], max_new_tokens=SHORT), contexts) for name in tasks],
        chosen,
        points,
        seed,
        mode,
        tables=tables,
        numerics=numerics,
    )


def planned_cost(job: Job, shape: DecoderShape, tokens: int | None = None) -> RunCost:
    """What ``plan`` says that a job costs on a model of some shape."""
    return make_plan(job, build_grid(job, count_by(job.model)), shape, tokens)


def timeless(frame: pd.DataFrame) -> pd.DataFrame:
    """Records without their times, which differ from run to run."""
    return frame.drop(columns=[column for column in frame.columns if column.endswith("_seconds")])


def outcome(store: Store) -> pd.DataFrame:
    return timeless(store.frame())


def assert_answers_equal(first: pd.DataFrame, second: pd.DataFrame) -> None:
    """Two runs in processes of their own: on some processors MKL adds in an order that follows from
    where a tensor lies in memory, so that likelihoods of equal answers differ by 1e-6 nats."""
    pd.testing.assert_frame_equal(first, second, rtol=1e-4, atol=1e-4)


@dataclass(frozen=True)
class Call:
    """A context that the engine was asked for: who was to treat it, at which levels, in which
    draws."""

    task: str
    index: int
    policies: tuple[str, ...]
    levels: tuple[float, ...]
    repeats: tuple[int, ...]


def record_calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The contexts that are run from now on."""
    calls: list[Call] = []
    collect = kvbench.experiments.collect.collect

    def recorded(
        model: LoadedModel, task: Task, examples: Sequence[Example], planned: Grid
    ) -> RowsByTable:
        names = tuple(policy.name for policy in planned.policies)
        levels = tuple(point.level.value for point in planned.points)
        repeats = tuple(point.repeat for point in planned.points)
        calls.extend(Call(task.name, example.index, names, levels, repeats) for example in examples)
        return collect(model, task, examples, planned)

    monkeypatch.setattr(kvbench.execution.execute, "collect", recorded)
    return calls


def policies_of(calls: Sequence[Call]) -> list[list[str]]:
    return [list(call.policies) for call in calls]


def places(model: Path, folder: Path) -> list[object]:
    """The options that name the model of a command, and where its runs and pages lie."""
    return ["--model", model, "--out", folder / "runs", "--site", folder / "site"]


def small_command(model: Path, folder: Path, *more: object) -> list[object]:
    """The command of a small run; of an option that is given again, the last counts."""
    small = [
        *("--limit", 1, "--ratios", 0.5, "--policies", "full,knorm", "--name", "x"),
        # The toy never ends an answer by itself, and what a test asks shows after a few tokens.
        *("--tasks", "base,hops", "--context-tokens", "native", "--max-new-tokens", SHORT),
    ]
    return ["run", *places(model, folder), *small, *more]


def by_policy(rows: RowsByTable) -> dict[str, list[Record]]:
    """Groups the records of some rows by their policies, in order of first appearance."""
    policies = dict.fromkeys(record.policy for record in rows.records)
    return {
        policy: [record for record in rows.records if record.policy == policy]
        for policy in policies
    }


def options_in(message: str) -> list[str]:
    """Lists the options that a message names, but for those of another command that stands before
    them."""
    return re.findall(
        r"(?<![\w-])--[a-z][a-z-]+",
        re.sub(r"kvbench [^:;(]*|(run|plan|ray start) --[a-z-]+", "", message),
    )


def options_of(command: str) -> set[str]:
    """Lists the options of a command; none where there is no such command."""
    parameters = application(command).params if command in COMMANDS else ()
    return {option for parameter in parameters for option in parameter.opts}


@dataclass
class CommandLine:
    """Commands of kvbench in this process: ``out`` and ``err`` hold what the last one said."""

    capsys: pytest.CaptureFixture[str]
    model: Path
    folder: Path
    out: str = ""
    err: str = ""

    def __call__(self, *words: object) -> int:
        self.capsys.readouterr()
        status = main([str(word) for word in words])
        self.out, self.err = self.capsys.readouterr()
        return status

    @property
    def complaint(self) -> str:
        """What the last command said beside its output, on one line."""
        return " ".join(self.err.split())

    def error(self, *words: object) -> str:
        """The only line that a command says which fails, beside what it says of models and slow
        checks."""
        assert self(*words) == 1
        (line,) = [
            line
            for line in self.err.splitlines()
            if line and not line.startswith(("loading", "check ", "forecast: "))
        ]
        assert line.startswith("error: ")
        assert "unexpected" not in line
        assert set(options_in(line)) <= {*map(str, words), *options_of(str(words[0]))}, (
            f"options of no use here: {line}"
        )
        return line

    @property
    def places(self) -> list[object]:
        """The options by which a command takes the toy model and writes into the temporary
        folder."""
        return places(self.model, self.folder)

    def words(self, *more: object, model: Path | None = None) -> list[object]:
        """The command of a small run of the toy model, or of another, named x."""
        return small_command(model or self.model, self.folder, *more)

    def run(self, *more: object, name: str = "x") -> Store:
        """A small run that succeeds."""
        assert self(*self.words(*more, "--name", name)) == 0, self.err
        return Store.open(self.folder / "runs" / name)


@dataclass(frozen=True)
class ToyRuns:
    """Runs grids of the toy model in a folder."""

    model: LoadedModel
    folder: Path

    def __call__(self, place: str | Path, *chosen: Any, **options: Any) -> Store:
        """Runs the grid that :func:`grid` makes of the other arguments, in a subfolder or at a
        place elsewhere."""
        folder = self.folder / place if isinstance(place, str) else place
        return execute(self.model, grid(*chosen, **options), folder, "a test")
