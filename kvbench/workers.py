"""Several pieces of work at once in one process, each on a core of its own.

A small model leaves most of a second core idle: its operations are too short to be shared out, and Python runs between
them. Two workers of one thread each do the same work in two thirds of the time of one with two threads, and bit for
bit the same (docs/performance.md).
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import TypeVar

import torch

from kvbench.models import LoadedModel

Item = TypeVar("Item")
Result = TypeVar("Result")
SMALL = 100_000_000  # parameters: the operations of a larger model keep all cores busy


def replica(model: LoadedModel) -> LoadedModel:
    """The same weights in modules of its own: kvpress and the engine hang hooks and attributes on modules."""
    shared = {id(tensor): tensor for tensor in (*model.network.parameters(), *model.network.buffers())}
    return replace(model, network=copy.deepcopy(model.network, shared))


class Workers:
    """``count`` threads with a replica of the model each, or the calling thread alone where that is 1."""

    def __init__(self, model: LoadedModel, count: int | None = None) -> None:
        small = model.device.type == "cpu" and model.network.num_parameters() < SMALL
        self.model = model
        self.count = count or (torch.get_num_threads() if small else 1)

    def map(self, work: Callable[[LoadedModel, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results in the order of the items. What was not begun when the caller leaves or fails is dropped."""
        if self.count == 1:
            yield from (work(self.model, item) for item in items)
            return
        idle: SimpleQueue[LoadedModel] = SimpleQueue()
        for _ in range(self.count):
            idle.put(replica(self.model))

        def with_a_replica(item: Item) -> Result:
            model = idle.get()
            try:
                return work(model, item)
            finally:
                idle.put(model)

        executor = ThreadPoolExecutor(self.count, "kvbench", torch.set_num_threads, (1,))
        try:
            for future in [executor.submit(with_a_replica, item) for item in items]:
                yield future.result()
        finally:
            executor.shutdown(cancel_futures=True)
