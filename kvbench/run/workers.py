"""Runs several pieces of work at once, each in a process and on a core of its own.

A small model leaves most of a second core idle: its operations are too short to be shared out, and Python runs between
them. Threads wait for one another's Python; processes of one thread each do not, and compute the same bit for bit
(docs/performance.md). They are forked, so that model, presses and closures need not be sent to them.
"""

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

import torch

from kvbench.models.load import LoadedModel
from kvbench.system.errors import KVBenchError, first_line, unexpected_error
from kvbench.system.memory import is_out_of_memory
from kvbench.system.process import die_with_parent
from kvbench.system.signals import INTERRUPTS, leave_to_parent

Item = TypeVar("Item")
Result = TypeVar("Result")
SMALL = 200_000_000  # parameters: two threads of a model of 135 million wait for each other as those of a small one do
CAN_FORK = sys.platform == "linux"  # macOS has the call, and system libraries that fail after it
AHEAD = 4  # items of each worker that are begun or waiting: what is finished early is held in memory

_job: Callable[[int], Any]  # of a worker process


def is_small(model: LoadedModel) -> bool:
    """Tells whether the operations of a model are too short for several cores."""
    return model.device.type == "cpu" and model.network.num_parameters() < SMALL


class Workers:
    """A pool of worker processes, not more than there are items. With a count of 1, the calling process works alone."""

    def __init__(self, model: LoadedModel, items: int, count: int | None = None) -> None:
        self.model = model
        self.count = min(count or (torch.get_num_threads() if is_small(model) and CAN_FORK else 1), max(1, items))

    @contextmanager
    def map(self, work: Callable[[LoadedModel, Item], Result], items: Sequence[Item]) -> Iterator[Iterator[Result]]:
        """Yields results in the order of the items; processes pickle them. An exception in the body, also Ctrl-C, ends
        all work at once."""
        if self.count == 1:
            yield (work(self.model, item) for item in items)
            return

        def job(number: int) -> Result:
            return work(self.model, items[number])

        former = set(active_children())
        gc.freeze()  # the collector never visits objects from before the fork again: 3 % less time
        executor = ProcessPoolExecutor(self.count, get_context("fork"), _begin, (job, os.getpid()))
        try:
            # Raised while Python forks, an interrupt would be printed and forgotten; and Python 3.12 warns of forks
            # beside threads, such as torch's: see _begin.
            with INTERRUPTS.hold(), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                begun = {n: executor.submit(_run, n) for n in range(min(len(items), AHEAD * self.count))}
            yield self._results(executor, begun, items)
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
                del begun[number]
                if (later := number + AHEAD * self.count) < len(items):
                    begun[later] = executor.submit(_run, later)
                yield result
        except BrokenProcessPool as error:
            # Items are begun in their order: who was killed had one of the first that are not done.
            late = [items[number] for number, future in begun.items() if future.exception() is not None]
            what = " or ".join(map(str, late[: self.count]))
            raise KVBenchError(
                f"a worker process was killed over {what}, most likely for lack of memory: start the same command "
                "again with a smaller --max-kv-gb, or without what takes most"
            ) from error


def _begin(job: Callable[[int], Any], parent: int) -> None:
    """Sets up a new worker. A fork does not copy the threads of torch's pool, so a worker keeps to its own thread.

    Ctrl-C reaches all processes of a terminal; workers ignore it, and the process that writes the store ends them.
    """
    global _job
    _job = job
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    leave_to_parent()
    die_with_parent(parent)


def _run(number: int) -> Any:
    """Works on one item. It raises only errors that can be pickled: any other error, also an exit, would look like a
    killed worker."""
    try:
        return _job(number)
    except KVBenchError:
        raise
    except BaseException as error:
        if is_out_of_memory(error):
            raise MemoryError(first_line(error)) from None  # the caller treats it apart from other errors
        raise unexpected_error(error) from None
