"""Runs every task, policy, level and draw of a grid into a store, and resumes one that was left."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from kvbench.run.executor import Executor
from kvbench.run.resume import missing_chunks
from kvbench.run.unit import Unit, count_in
from kvbench.store.lending import Lenders
from kvbench.store.store import Store
from kvbench.store.tables import RowsByTable
from kvbench.system.console import console
from kvbench.system.errors import InterruptedRunError, KVBenchError, first_line
from kvbench.system.lock import working_in
from kvbench.system.memory import is_out_of_memory


def complete(executor: Executor, folder: Path, command: str) -> Store:
    """Runs what is missing of an executor's grid. The store's status tells how it ended, also after Ctrl-C."""
    with working_in(folder):
        store = Store.start(folder, executor.identity, command, executor.job)
        with _noted_failures(store):
            _fill(executor, store)
        store.finish()
        return store


@contextmanager
def _noted_failures(store: Store) -> Iterator[None]:
    """Writes into the store why the body failed."""
    kept = f"what was finished is kept in {store.folder}; start the same command again"
    try:
        yield
    except KeyboardInterrupt as interrupt:
        store.fail("interrupted")
        raise InterruptedRunError(f"interrupted: {kept} to go on") from interrupt
    except KVBenchError as error:
        _note_failure(store, str(error))
        raise
    except (Exception, SystemExit) as error:  # a fault of ours, a model that cannot be run, a pipe that was closed
        if is_out_of_memory(error):
            _note_failure(store, "out of memory")
            raise KVBenchError(f"the device is out of memory: {kept} with a smaller --max-kv-gb") from error
        _note_failure(store, f"{type(error).__name__}: {first_line(error)}")
        raise


def _note_failure(store: Store, reason: str) -> None:
    """Writes that the run failed. On a full disk not even this can be written: the status then stays ``started``."""
    try:
        store.fail(reason)
    except KVBenchError:
        return


def _fill(executor: Executor, store: Store) -> None:
    grid, lenders = executor.grid, Lenders(store)
    chunks = {chunk.unit(grid): chunk for chunk in missing_chunks(grid, store, lenders)}
    missing = sum(count_in(grid, part) for unit in chunks for part in unit.parts)
    if missing < (total := grid.generations()):
        console.print(f"{total - missing:,} of {total:,} generations are there already")
    if not chunks:
        return
    if lenders.refusal:
        console.print(lenders.refusal, soft_wrap=True)
    done: defaultdict[Unit, list[RowsByTable]] = defaultdict(list)  # by unit, the rows of its contexts so far
    with executor.map(list(chunks)) as results, _progress() as progress:
        bar = progress.add_task("generations", total=missing)
        for unit, fresh in results:
            progress.update(bar, description=str(unit), advance=len(fresh.records))
            done[unit].append(fresh)
            if len(done[unit]) == len(unit.parts):
                rows = RowsByTable()
                for of_context in done.pop(unit):
                    rows.extend(of_context)
                store.write_chunk(unit.task, unit.number, chunks[unit].add_loans(rows, lenders))


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
