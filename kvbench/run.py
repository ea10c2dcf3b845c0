"""A run: every task, every policy, every ratio, into a store that can be taken up again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from datasets_gen import Example, Task
from kvbench.catalogue import covering
from kvbench.collect import collect
from kvbench.console import console
from kvbench.engine.decode import check_length
from kvbench.engine.treatment import levels_of
from kvbench.errors import InterruptedRunError, KVBenchError, first_line
from kvbench.identity import Identity, identify
from kvbench.models import LoadedModel
from kvbench.prompt import build_prompts
from kvbench.record import Record
from kvbench.reuse import Lenders
from kvbench.setting import Setting
from kvbench.store import Store
from kvbench.workers import Workers
from leaderboards import Asked
from policies import Policy

CONTEXTS_IN_CHUNK = 5


@dataclass(frozen=True)
class Grid:
    """What a run covers. ``tasks``: with the number of contexts of each; the setting's seed is that of the examples
    too. ``held_out``: written in the phrasings that training never shows."""

    tasks: Sequence[tuple[Task, int]]
    setting: Setting
    held_out: bool = False

    def identity(self, model: LoadedModel) -> Identity:
        return identify(model, self.tasks, self.setting, self.held_out)

    def example(self, task: Task, index: int) -> Example:
        return task.example(self.setting.seed, index, held_out=self.held_out)

    def policies_on(self, task: Task) -> list[Policy]:
        return covering(self.setting.policies, task, self.setting.mode)

    def cells(self, policies: Sequence[Policy]) -> int:
        """Branches decoded for each question."""
        return sum(len(self.levels(policy)) for policy in policies)

    def levels(self, policy: Policy) -> tuple[Asked, ...]:
        """What it is asked to reach."""
        return levels_of(policy, self.setting.ratios, self.setting.budgets)


def chunks(contexts: int) -> list[range]:
    """Contexts in portions: a portion is what a kill can lose."""
    return [range(first, min(first + CONTEXTS_IN_CHUNK, contexts)) for first in range(0, contexts, CONTEXTS_IN_CHUNK)]


@dataclass(frozen=True)
class Portion:
    """A chunk of contexts of one task, and the policies whose records of it are missing."""

    task: Task
    number: int
    chunk: range
    policies: Sequence[Policy]


def execute(model: LoadedModel, grid: Grid, folder: Path, command: str) -> Store:
    """Runs what is missing of a grid. The store's status tells how it ended, also after Ctrl-C."""
    check_first_contexts(model, grid)
    store = Store.start(folder, grid.identity(model).model_dump(mode="json"), command)
    try:
        _fill(model, grid, store)
    except KeyboardInterrupt as interrupt:
        store.fail("interrupted")
        raise InterruptedRunError(
            f"interrupted: what was finished is kept in {folder}; start the same command again to go on"
        ) from interrupt
    except KVBenchError as error:
        _note_failure(store, str(error))
        raise
    except torch.OutOfMemoryError as error:
        _note_failure(store, "out of memory")
        raise KVBenchError(
            f"the device is out of memory: what was finished is kept in {folder}; start the same command again with a "
            "smaller --max-kv-gb"
        ) from error
    except (Exception, SystemExit) as error:  # a fault of ours, a model that cannot be run, a pipe that was closed
        _note_failure(store, f"{type(error).__name__}: {first_line(error)}")
        raise
    store.finish()
    return store


def check_first_contexts(model: LoadedModel, grid: Grid) -> None:
    """What no context of a task can be read for is found out before anything is written."""
    for task, _ in grid.tasks:
        for prompt in build_prompts(model.tokenizer, task, grid.example(task, 0), grid.setting.mode):
            check_length(model, prompt, task.max_new_tokens)


def _note_failure(store: Store, reason: str) -> None:
    """On a full disk not even this can be written: the status then stays ``started``."""
    try:
        store.fail(reason)
    except KVBenchError:
        return


def _fill(model: LoadedModel, grid: Grid, store: Store) -> None:
    pending, missing = _lacking(grid, store)
    if missing == 0:
        return
    contexts = [(portion, index) for portion in pending for index in portion.chunk]
    workers = Workers(model, len(contexts))
    setting = grid.setting.shared_by(workers.count)

    def records_of(model: LoadedModel, context: tuple[Portion, int]) -> dict[str, list[Record]]:
        portion, index = context
        example = grid.example(portion.task, index)
        return collect(model, portion.task, [example], setting.only(portion.policies))

    with workers.map(records_of, contexts) as results, _progress() as progress:
        bar = progress.add_task("generations", total=missing)
        for portion in pending:
            progress.update(bar, description=f"{portion.task.name} {portion.chunk.start}-{portion.chunk.stop - 1}")
            records: dict[str, list[Record]] = {policy.name: [] for policy in portion.policies}
            for _ in portion.chunk:
                for name, found in next(results).items():
                    records[name] += found
                    progress.advance(bar, len(found))
            for name, found in records.items():
                store.write_records(store.record_file(portion.task.name, portion.number, name), found)


def _lacking(grid: Grid, store: Store) -> tuple[list[Portion], int]:
    """What is not stored yet, and how many generations that is."""
    lenders = Lenders(store)
    portions, total, missing = [], 0, 0
    for task, contexts in grid.tasks:
        for number, chunk in enumerate(chunks(contexts)):
            size = sum(len(grid.example(task, index).questions) for index in chunk)
            policies = grid.policies_on(task)
            lacking = []
            for policy in policies:
                count = size * grid.cells([policy])
                there = store.has(task.name, number, policy.name, count)
                if not there and not lenders.lend(task.name, number, policy.name, grid.levels(policy), chunk, count):
                    lacking.append(policy)
            if lacking:
                portions.append(Portion(task, number, chunk, lacking))
            total += size * grid.cells(policies)
            missing += size * grid.cells(lacking)
    if missing < total:
        console.print(f"{total - missing:,} of {total:,} generations are there already")
    return portions, missing


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
