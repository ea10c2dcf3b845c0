"""Several pieces of work at once, each in a process of its own on a core of its own.

A small model leaves most of a second core idle: its operations are too short to be shared out, and Python runs between
them. Threads wait for one another's Python; processes of one thread each do not, and compute the same bit for bit
(docs/performance.md). They are forked, so that model, presses and closures need not be sent to them.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

import torch

from kvbench.errors import KVBenchError
from kvbench.models import LoadedModel
from kvbench.process import die_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")
SMALL = 100_000_000  # parameters: the operations of a larger model keep all cores busy
CAN_FORK = sys.platform == "linux"  # macOS has the call, and system libraries that fail after it

_job: Callable[[int], Any]  # of a worker process


class Workers:
    """``count`` processes, or the calling one alone where that is 1."""

    def __init__(self, model: LoadedModel, count: int | None = None) -> None:
        small = model.device.type == "cpu" and model.network.num_parameters() < SMALL
        self.model = model
        self.count = count or (torch.get_num_threads() if small and CAN_FORK else 1)

    def map(self, work: Callable[[LoadedModel, Item], Result], items: Sequence[Item]) -> Generator[Result]:
        """Results in the order of the items; they and failures are pickled on their way here. What was not begun when
        the caller leaves or fails is dropped."""
        if self.count == 1:
            yield from (work(self.model, item) for item in items)
            return

        def job(number: int) -> Result:
            return work(self.model, items[number])

        executor = ProcessPoolExecutor(self.count, get_context("fork"), _begin, (job,))
        try:
            with warnings.catch_warnings():  # Python 3.12 warns of forks beside threads; see _begin
                warnings.simplefilter("ignore", DeprecationWarning)
                futures = [executor.submit(_run, number) for number in range(len(items))]
            for future in futures:
                yield future.result()
        except BrokenProcessPool as error:
            raise KVBenchError(
                "a worker process was killed, most likely for lack of memory: start the same command again with a "
                "smaller --max-kv-gb"
            ) from error
        finally:
            executor.shutdown(cancel_futures=True)


def _begin(job: Callable[[int], Any]) -> None:
    """In a new worker. The threads of torch's pool are not forked with it: it may never ask for more than its own.

    Ctrl-C reaches all processes of a terminal; the one that writes the store decides what becomes of it.
    """
    global _job
    _job = job
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()


def _run(number: int) -> Any:
    return _job(number)
