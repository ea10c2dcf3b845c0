"""A run: every task, every policy, every ratio, into a store that can be taken up again."""

from dataclasses import replace
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from datasets_gen import Task
from kvbench.collect import collect
from kvbench.console import console
from kvbench.engine.decode import check_length
from kvbench.errors import InterruptedRunError, KVBenchError, first_line
from kvbench.grid import Grid
from kvbench.models import LoadedModel
from kvbench.portions import lacking
from kvbench.prompt import build_prompts
from kvbench.record import Record
from kvbench.reuse import Lenders
from kvbench.setting import Setting
from kvbench.store import Store
from kvbench.workers import Workers


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
    """What no context of a task can be read for is found out before anything is written; of a task whose contexts were
    given, and are of any length, what one of them cannot be read for."""
    for task, contexts in grid.tasks:
        for index in range(1 if task.most is None else contexts):
            for prompt in build_prompts(model.tokenizer, task, grid.example(task, index), grid.setting.mode):
                check_length(model, prompt, task.max_new_tokens)


def _note_failure(store: Store, reason: str) -> None:
    """On a full disk not even this can be written: the status then stays ``started``."""
    try:
        store.fail(reason)
    except KVBenchError:
        return


def _fill(model: LoadedModel, grid: Grid, store: Store) -> None:
    lenders = Lenders(store)
    portions = lacking(grid, store, lenders)
    work = [
        (portion.task, index, setting)
        for portion in portions
        for index in portion.chunk
        if (setting := portion.setting_for(grid, index))
    ]
    missing = sum(_generations(grid, *context) for context in work)
    if missing < (total := grid.generations()):
        console.print(f"{total - missing:,} of {total:,} generations are there already")
    if not portions:
        return
    workers = Workers(model, len(work))

    def records_of(model: LoadedModel, context: tuple[Task, int, Setting]) -> list[Record]:
        task, index, setting = context
        found = collect(model, task, [grid.example(task, index)], setting.shared_by(workers.count))
        return [record for own in found.values() for record in own]

    with workers.map(records_of, work) as results, _progress() as progress:
        bar = progress.add_task("generations", total=missing)
        for portion in portions:
            progress.update(bar, description=f"{portion.task.name} {portion.chunk.start}-{portion.chunk.stop - 1}")
            found: list[Record] = []
            for _ in (index for index in portion.chunk if portion.setting_for(grid, index)):
                found += (fresh := next(results))
                progress.advance(bar, len(fresh))
            for name, table in portion.completed(found, lenders).items():
                store.write_table(store.record_file(portion.task.name, portion.number, name), table)


def _generations(grid: Grid, task: Task, index: int, setting: Setting) -> int:
    part = replace(grid, setting=setting)
    return grid.questions(task, index) * part.cells(part.policies_on(task))


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
