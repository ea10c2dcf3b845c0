"""Loads a job and runs its units on this machine: in this process, or for a small model in one on
each core."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

import torch

from kvbench.engine.decode.waves import count_too_large
from kvbench.engine.treat.plan import plan, with_reference
from kvbench.execution.execute import Unit, UnitRows, check_first_contexts, rows_of
from kvbench.experiments.build_grid import leave_out, leave_out_tasks
from kvbench.experiments.catalogue import unfit_for
from kvbench.experiments.grid import Grid
from kvbench.experiments.suites import asked_dtype
from kvbench.handed.scope import find_handed_model
from kvbench.models.load import LoadedModel, missing_weights
from kvbench.models.opening import open_model
from kvbench.models.precision import choose_device, choose_dtype
from kvbench.models.pretrained import read_cache_shape
from kvbench.prompts.prompt import WITHOUT_TEMPLATE, build_prompts
from kvbench.store.run_file import Job
from kvbench.store.tables import RowsByTable, find_table
from kvbench.system.clock import today
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError, first_line, unexpected_error
from kvbench.system.memory import is_out_of_memory
from kvbench.system.process import die_with_parent, interrupts_held, leave_to_parent, settle
from leaderboards.metrics.declaration import size_text

Item = TypeVar("Item")
Result = TypeVar("Result")
# Parameters: two threads of a model of 135 million wait for each other as those of a small one do.
SMALL = 200_000_000
CAN_FORK = sys.platform == "linux"  # macOS has the call, and system libraries that fail after it
# Contexts that a worker gets at most: prompts of few branches are decoded together.
CONTEXTS_TOGETHER = 4
AT_THE_END = 2  # of the last task, so that workers end at about the same time
# Items of each worker that are begun or waiting: what is finished early is held in memory.
AHEAD = 4

_job: Callable[[int], Any]  # of a worker process


def is_small(model: LoadedModel) -> bool:
    """Tells whether the operations of a model are too short for several cores."""
    return model.device.type == "cpu" and model.network.num_parameters() < SMALL


class Workers:
    """A pool of worker processes, not more than there are items. With a count of 1, the calling
    process works alone."""

    def __init__(self, model: LoadedModel, items: int, count: int | None = None) -> None:
        self.model = model
        uses_all_cores = is_small(model) and CAN_FORK
        default = torch.get_num_threads() if uses_all_cores else 1
        self.count = min(count or default, max(1, items))

    @contextmanager
    def map(
        self, work: Callable[[LoadedModel, Item], Result], items: Sequence[Item]
    ) -> Iterator[Iterator[Result]]:
        """Yields results in the order of the items. An exception in the body, also Ctrl-C, ends all
        work at once."""
        if self.count == 1:
            yield (work(self.model, item) for item in items)
            return

        def job(number: int) -> Result:
            return work(self.model, items[number])

        former = set(active_children())
        # With fork, workers get the job as it is: a function around a model could not be pickled.
        executor = ProcessPoolExecutor(self.count, get_context("fork"), _begin, (job, os.getpid()))
        try:
            # Raised while Python forks, an interrupt would be printed and forgotten; and Python
            # 3.12 warns of forks beside threads, such as torch's: see _begin.
            with interrupts_held(), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                first = range(min(len(items), AHEAD * self.count))
                begun = {number: executor.submit(_run, number) for number in first}
            yield self._results(executor, begun, items)
        # Also Ctrl-C and a caller that stops asking: workers ignore signals and would work on.
        except BaseException:
            for child in set(active_children()) - former:
                child.kill()
            raise
        finally:
            executor.shutdown(cancel_futures=True)

    def _results(
        self, executor: ProcessPoolExecutor, begun: dict[int, Future[Result]], items: Sequence[Item]
    ) -> Iterator[Result]:
        try:
            for number in range(len(items)):
                result = begun[number].result()
                # Let go at once, since it holds the rows of whole contexts.
                del begun[number]
                later = number + AHEAD * self.count
                if later < len(items):
                    begun[later] = executor.submit(_run, later)
                yield result
        except BrokenProcessPool as error:
            # Items are begun in their order: who was killed had one of the first that are not done.
            late = [items[n] for n, future in begun.items() if future.exception() is not None]
            suspects = " or ".join(map(str, late[: self.count]))
            fault = f"a worker process was killed over {suspects}, most likely for lack of memory"
            advice = "with a smaller --max-kv-gb, or without what takes most"
            raise KVBenchError(f"{fault}: start the same run again {advice}") from error


def _begin(job: Callable[[int], Any], parent: int) -> None:
    """Sets up a new worker. A fork does not copy the threads of torch's pool, so a worker keeps to
    its own thread.

    Ctrl-C reaches all processes of a terminal; workers ignore it, and the process that writes the
    store ends them.
    """
    global _job
    _job = job
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    leave_to_parent()
    die_with_parent(parent)


def _run(number: int) -> Any:
    with errors_in_one_line():
        return _job(number)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Raises errors of the body as errors that can be pickled: any other, also an exit, would look
    like a killed worker."""
    try:
        yield
    except KVBenchError:
        raise
    except BaseException as error:
        if is_out_of_memory(error):
            # The caller treats it apart from other errors.
            raise MemoryError(first_line(error)) from None
        raise unexpected_error(error) from None


def model_of(job: Job, why: str = "") -> LoadedModel:
    """Loads the model of a job, and says so; ``why``: what it is loaded for beside the run."""
    dtype = asked_dtype(job.dtype, job.suite)
    model = open_model(job.model, job.device, dtype, job.device_map, job.date, why)
    if find_handed_model(job.model) is None:  # else the process is the caller's
        settle()
    if model.tokenizer.chat_template is None:
        console.print(f"{job.model} has no chat template: {WITHOUT_TEMPLATE}", soft_wrap=True)
    return model


def on_this_machine(job: Job, grid: Grid, loaded: LoadedModel | None = None) -> "LocalExecutor":
    """Loads the model of a job, unless it is ``loaded`` already, and leaves out of its grid what
    the model cannot do. Raises :class:`KVBenchError` where nothing is left, and for contexts that
    the model cannot read."""
    dtype = asked_dtype(job.dtype, job.suite)
    unfit: dict[str, str] = {}
    if any(policy.needs.check_model for policy in grid.policies):
        shape = read_cache_shape(job.model, job.device, dtype)
        if shape:
            unfit = unfit_for(grid.policies, shape)
    grid = leave_out(grid, unfit, job)
    # Before the model is on the device: torch reads cuBLAS's variable with the first product there.
    _prepare_studies(job, grid)
    if loaded is not None and _serves(loaded, job):
        model = loaded
    else:
        model = model_of(job)
    if model.date and model.date != today():
        message = f"the chat template tells {model.date}, which is not today"
        console.print(f"{message}: --date gives another day", soft_wrap=True)
    grid = leave_out_tasks(grid, model.tokenizer, job)
    missing = missing_weights(grid.policies, model)
    grid = leave_out(grid, missing, job)
    check_first_contexts(model, grid)
    return LocalExecutor(model, grid, job, unfit | missing)


def _prepare_studies(job: Job, grid: Grid) -> None:
    """Prepares the device for the tables of studies; raises :class:`KVBenchError` where it lacks
    what one of them needs."""
    for name in grid.tables:
        table = find_table(name)
        if table.prepare is not None:
            table.prepare(grid, choose_device(job.device))


def _serves(model: LoadedModel, job: Job) -> bool:
    """Tells whether a model is the one that a job would load."""
    if find_handed_model(job.model) is not None:
        return model.name == job.model
    dtype = choose_dtype(asked_dtype(job.dtype, job.suite), model.device, job.model)
    is_same = model.name == job.model and model.network.dtype == dtype
    return is_same and model.date in ("", job.date or model.date)


def memory_plan(model: LoadedModel, grid: Grid, max_kv_bytes: int, workers: int) -> str:
    """Describes the bound on live keys and values, and the branches that it is too small for, in
    one line."""
    bound = f"at most {size_text(max_kv_bytes)} of keys and values at once"
    if workers > 1:
        bound += f" in each of {workers} processes"
    too_large = max(_too_large(model, grid, max_kv_bytes), default=0)
    if too_large:
        bound += f"; {too_large} branches need more and will fail: see --max-kv-gb"
    return bound


def processes_within(model: LoadedModel, grid: Grid, max_kv_bytes: int, limit: int) -> int:
    """Returns how many processes may share the bound. They are fewer than ``limit`` where a branch
    fits into the bound but not into a share of it, because results must not depend on the cores of
    the machine."""
    alone = _too_large(model, grid, max_kv_bytes)
    count = limit
    while count > 1 and _too_large(model, grid, max_kv_bytes // count) != alone:
        count -= 1
    return count


def _too_large(model: LoadedModel, grid: Grid, max_kv_bytes: int) -> list[int]:
    """Counts the branches of the first prompt of each task that do not fit."""
    counts = []
    for task, _ in grid.tasks:
        # One context stands for all. A longer one of a file may still fail, with its own reason.
        example = grid.example(task, 0)
        prompt = build_prompts(model.tokenizer, task, example, grid.mode)[0]
        planned = plan(grid.policies_on(task), grid.points, prompt, grid.seed)
        scorings = with_reference(planned, prompt)
        count = count_too_large(model, prompt, scorings, task.max_new_tokens, max_kv_bytes)
        counts.append(count)
    return counts


@dataclass
class LocalExecutor:
    """Gives a few contexts at a time to workers, so that no worker waits for the rest of a unit."""

    model: LoadedModel
    grid: Grid  # what can be run with that model
    job: Job | None = None
    # Policies that cannot run on it, with the reason.
    missing: dict[str, str] = field(default_factory=dict)
    memory_line: str = field(default="", init=False)  # that was printed last

    def __post_init__(self) -> None:
        self.identity = self.grid.identity(self.model)

    @contextmanager
    def map(self, units: Sequence[Unit]) -> Iterator[Iterator[UnitRows]]:
        contexts = sum(len(unit.contexts) for unit in units)
        limit = Workers(self.model, contexts).count
        # So small that each worker gets several, and none waits long for the last one.
        parts = self._divide(units, contexts // (AHEAD * limit))
        bound = self.grid.kv_bound(self.model.device)
        count = processes_within(self.model, self.grid, bound, limit)
        workers = Workers(self.model, len(parts), count)
        share = bound // workers.count
        line = memory_plan(self.model, self.grid, share, workers.count)
        # Called twice where the full cache is looked at first: the line is said once.
        if line != self.memory_line:
            console.print(line, soft_wrap=True)
        self.memory_line = line

        def work(model: LoadedModel, unit: Unit) -> RowsByTable:
            return rows_of(model, self.grid, unit, share)

        with workers.map(work, [part for _, part in parts]) as results:
            yield zip((unit for unit, _ in parts), results, strict=True)

    def _divide(self, units: Sequence[Unit], wanted: int) -> list[tuple[Unit, Unit]]:
        """Divides units into parts of ``wanted`` contexts, as far as that is sensible; returns each
        part behind its unit."""
        if any(find_table(name).takes_minutes for name in self.grid.tables):
            wanted = 1  # no context of these is decoded with another
        parts = []
        for unit in units:
            largest = AT_THE_END if unit is units[-1] else CONTEXTS_TOGETHER
            size = max(1, min(largest, wanted))
            for start in range(0, len(unit.contexts), size):
                contexts = unit.contexts[start : start + size]
                parts.append((unit, replace(unit, contexts=contexts)))
        return parts
