"""Runs every task, policy, level and draw of a grid into a store, and resumes one that was left."""

import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from datasets_gen import Task
from kvbench.engine.decode.answers import check_length
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from kvbench.store.merging import borrow, runs_beside, why_not_lent
from kvbench.store.press_sources import keep_sources
from kvbench.store.run_file import Identity, Job
from kvbench.store.store import Store
from kvbench.store.tables import CONTEXTS, RowsByTable, find_table
from kvbench.system.console import console, progress_bar
from kvbench.system.errors import InterruptedRunError, KVBenchError, first_line
from kvbench.system.files import working_in
from kvbench.system.memory import is_out_of_memory
from policies import FULL

CONTEXTS_IN_CHUNK = 5  # a chunk is what a kill can lose
NAMED = 5  # policies of a message


@dataclass(frozen=True)
class Unit:
    """A chunk of contexts of one task with the policies to run on them: its records are written,
    and lost, together."""

    task: str
    number: int
    contexts: range
    policies: tuple[str, ...]

    def __str__(self) -> str:
        policies = ", ".join(self.policies[:NAMED])
        if len(self.policies) > NAMED:
            policies += f" and {len(self.policies) - NAMED} more"
        return f"{self.task} {self.contexts[0]}-{self.contexts[-1]} ({policies})"


def rows_of(model: LoadedModel, grid: Grid, unit: Unit, max_kv_bytes: int) -> RowsByTable:
    """Runs a unit, or part of one. ``max_kv_bytes``: this worker's share of the bound on keys and
    values."""
    task = grid.task(unit.task)
    policies = [policy for policy in grid.policies if policy.name in unit.policies]
    grid_of_unit = replace(grid, policies=policies, max_kv_bytes=max_kv_bytes)
    examples = [grid.example(task, index) for index in unit.contexts]
    return collect(model, task, examples, grid_of_unit)


def check_first_contexts(model: LoadedModel, grid: Grid) -> None:
    """Raises :class:`KVBenchError` before anything is written if the model cannot read the first
    context of a task, or any context of a task whose contexts were given and are of any length."""
    for task, contexts in grid.tasks:
        count = 1 if task.most is None else contexts
        for index in range(count):
            example = grid.example(task, index)
            for prompt in build_prompts(model.tokenizer, task, example, grid.mode):
                check_length(model, prompt, task.max_new_tokens)


UnitRows = tuple[Unit, RowsByTable]


class Executor(Protocol):
    """Runs units somewhere: in processes of this machine, or on a Ray cluster.

    The run alone writes the store. So a worker that dies leaves no half-done work, and a run that
    dies resumes from its files.
    """

    grid: Grid  # the grid that can be run there
    identity: Identity  # of the run that it would write
    job: Job | None  # the options that made the grid; none where Python code made it

    @property
    def model(self) -> LoadedModel | None:
        """Returns the model, where it is loaded in this process."""

    def map(self, units: Sequence[Unit]) -> AbstractContextManager[Iterator[UnitRows]]:
        """Yields the rows of units or parts, the contexts of each in order. An exception in the
        body ends all work."""


Look = Callable[[Store], None]


def complete(
    executor: Executor, folder: Path, command: str = "", look: Look | None = None
) -> Store:
    """Runs what is missing of an executor's grid. The store's status tells how it ended, also after
    Ctrl-C. ``look`` sees the store when the full cache alone has answered, before any policy runs,
    and may raise an error then."""
    with _begun(executor, folder, command) as store:
        _fill(executor, store, look)
    return store


def complete_contexts(
    executor: Executor, folder: Path, contexts: Mapping[str, Sequence[int]]
) -> Store:
    """Runs what is missing of some contexts alone, by task their numbers. A folder takes no other
    run: each context is a chunk of its own there."""
    grid = executor.grid
    units = []
    with _begun(executor, folder) as store:
        for name, numbers in contexts.items():
            task = grid.task(name)
            for number in numbers:
                questions = grid.questions(task, number)
                missing = _missing_policies(grid, store, task, number, (1, questions))
                if missing:
                    units.append(Unit(name, number, range(number, number + 1), tuple(missing)))
        _run_units(executor, store, units)
    return store


@contextmanager
def _begun(executor: Executor, folder: Path, command: str = "") -> Iterator[Store]:
    """Begins a run or resumes it, and writes into its store how the body ends."""
    command = command or shlex.join(["python", "-m", "kvbench", *sys.argv[1:]])
    # Locked before anything is looked at: two starts of one command would write the same files.
    with working_in(folder):
        store = Store.start(folder, executor.identity, command, executor.job)
        with _noted_failures(store):
            keep_sources(folder, executor.grid.policies)
            yield store
        store.finish()


@contextmanager
def _noted_failures(store: Store) -> Iterator[None]:
    """Writes into the store why the body failed."""
    kept = f"what was finished is kept in {store.folder}; start the same run again"
    try:
        yield
    except KeyboardInterrupt as interrupt:
        store.fail("interrupted")
        raise InterruptedRunError(f"interrupted: {kept} to go on") from interrupt
    except (Exception, SystemExit) as error:
        # A fault of ours, a model that cannot be run, a pipe that was closed.
        says_what_to_do = isinstance(error, KVBenchError)
        no_memory = not says_what_to_do and is_out_of_memory(error)
        reason = f"{type(error).__name__}: {first_line(error)}"
        if no_memory:
            reason = "out of memory"
        elif says_what_to_do:
            reason = str(error)
        with suppress(KVBenchError):  # on a full disk not even this can be written
            store.fail(reason)
        if no_memory:
            raise KVBenchError(
                f"the device is out of memory: {kept} with a smaller --max-kv-gb"
            ) from error
        raise


def _fill(executor: Executor, store: Store, look: Look | None) -> None:
    """Runs what is missing, the full cache first where its answers are looked at."""
    grid = executor.grid
    units = missing_units(grid, store)
    missing, total = count_generations(grid, units), grid.generations()
    if missing < total:
        console.print(f"{total - missing:,} of {total:,} generations are there already")
    if not units:
        return
    # Nothing is there and nothing was lent: if a run beside this one asked the same, it is told
    # why.
    if missing == total and (reason := why_not_lent(store)):
        console.print(reason, soft_wrap=True, markup=False)
    if look is not None:
        first, units = with_full_cache_first(units)
        _run_units(executor, store, first)
        look(store)
    _run_units(executor, store, units)


def count_generations(grid: Grid, units: Sequence[Unit]) -> int:
    """Counts the answers of some units."""
    count = 0
    for unit in units:
        task = grid.task(unit.task)
        policies = [policy for policy in grid.policies if policy.name in unit.policies]
        questions = sum(grid.questions(task, index) for index in unit.contexts)
        count += grid.cells(policies) * questions
    return count


def with_full_cache_first(units: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Divides units into those of the full cache and those of all other policies."""
    first = [replace(unit, policies=(FULL,)) for unit in units if FULL in unit.policies]
    others = []
    for unit in units:
        policies = tuple(policy for policy in unit.policies if policy != FULL)
        if policies:
            others.append(replace(unit, policies=policies))
    return first, others


def _run_units(executor: Executor, store: Store, units: Sequence[Unit]) -> None:
    """Runs units, and writes each once all of its contexts are answered."""
    if not units:
        return
    missing = count_generations(executor.grid, units)
    # The rows of the parts of each unit so far.
    done: defaultdict[Unit, RowsByTable] = defaultdict(RowsByTable)
    with executor.map(units) as results, progress_bar(is_kept=True) as progress:
        bar = progress.add_task("generations", total=missing)
        for unit, fresh in results:
            description = f"{unit.task} {unit.contexts[0]}-{unit.contexts[-1]}"
            progress.update(bar, description=description, advance=len(fresh.records))
            for name, rows in fresh.tables.items():
                done[unit].add(name, rows)
            # The parts of a unit may come in any number: it is whole once all of its contexts are.
            if len(done[unit].tables[CONTEXTS.name]) == len(unit.contexts):
                _write_unit(store, unit, done.pop(unit))


def _write_unit(store: Store, unit: Unit, rows: RowsByTable) -> None:
    tables = {}
    for name, table_rows in rows.tables.items():
        tables[name] = find_table(name).to_arrow(table_rows)
    store.write_chunk(unit.task, unit.number, tables)


def chunks(contexts: int) -> list[range]:
    """Divides so many contexts into chunks."""
    # From 0 on whatever the number is, so that a larger --limit finds whole chunks of a smaller.
    starts = range(0, contexts, CONTEXTS_IN_CHUNK)
    return [range(start, min(start + CONTEXTS_IN_CHUNK, contexts)) for start in starts]


def missing_units(grid: Grid, store: Store) -> list[Unit]:
    """Finds the units that are not stored yet, and copies those that another run beside this one
    has whole."""
    others = runs_beside(store)
    units = []
    for task, count in grid.tasks:
        for number, contexts in enumerate(chunks(count)):
            counts = (len(contexts), sum(grid.questions(task, index) for index in contexts))
            missing = []
            for name in _missing_policies(grid, store, task, number, counts):
                if not borrow(store, others, task.name, number, name, counts):
                    missing.append(name)
            if missing:
                units.append(Unit(task.name, number, contexts, tuple(missing)))
    return units


def _missing_policies(
    grid: Grid, store: Store, task: Task, chunk: int, counts: tuple[int, int]
) -> list[str]:
    """Names the policies whose records of a chunk are not stored yet. ``counts``: of the contexts
    and questions of the chunk."""
    names = [policy.name for policy in grid.policies_on(task)]
    # One look for all policies, whose records are about the same contexts and questions.
    if not store.has_questions(task.name, chunk, *counts):
        return names
    missing = []
    for policy in grid.policies_on(task):
        records = counts[1] * len(grid.points_for(policy))
        if not store.has(task.name, chunk, policy.name, records):
            missing.append(policy.name)
    return missing
