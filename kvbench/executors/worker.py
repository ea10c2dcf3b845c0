"""A worker somewhere else: it makes the grid of a job, loads its model once, and does units of it."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch

from kvbench.engine.memory import is_out_of_memory
from kvbench.errors import KVBenchError, unexpected
from kvbench.executors.unit import Unit, check_first_contexts, rows_of
from kvbench.forecast import memory_plan
from kvbench.grid import Grid
from kvbench.identity import Identity
from kvbench.job import Job
from kvbench.models import LoadedModel, missing_weights
from kvbench.process import settle
from kvbench.rows import Rows
from kvbench.store import PROVENANCE

Result = TypeVar("Result")


@dataclass(frozen=True)
class Readiness:
    """What a worker says when its model is loaded. ``missing``: policies without their weights, and why. ``memory``:
    what it will ask for."""

    identity: Identity
    missing: dict[str, str]
    memory: str


class Worker:
    """``folder``: where relative paths of the job, such as those of plug-ins, begin. ``sharing``: how many workers have
    the same memory. All that it raises is a :class:`KVBenchError`, which any process can read."""

    def __init__(self, job: Job, folder: Path, threads: int, sharing: int = 1) -> None:
        self.job, self.folder, self.threads, self.sharing = job, folder, threads, sharing

    def prepare(self) -> Readiness:
        """Loads the model."""
        return _in_one_line(self._prepare)

    def work(self, unit: Unit, expected: Identity) -> list[Rows]:
        """The rows of each context of a unit; :class:`KVBenchError` if they would belong to another run."""
        return _in_one_line(lambda: self._work(unit, expected))

    def _prepare(self) -> Readiness:
        memory = memory_plan(self._model, self._grid, self._share, self.sharing)
        return Readiness(self._identity, self._missing, memory)

    def _work(self, unit: Unit, expected: Identity) -> list[Rows]:
        own, asked = (identity.model_dump(exclude=set(PROVENANCE)) for identity in (self._identity, expected))
        if differing := [name for name in own if own[name] != asked[name]]:
            raise KVBenchError(
                f"the worker on {platform.node()} would write another run ({differing[0]}: {own[differing[0]]} instead "
                f"of {asked[differing[0]]}): all machines need the same kvbench, packages, model and kind of device"
            )
        return [rows_of(self._model, self._grid, part, self._share) for part in unit.parts]

    @cached_property
    def _model(self) -> LoadedModel:
        if self.folder.is_dir():
            os.chdir(self.folder)
        torch.set_num_threads(self.threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        loaded = self.job.load()
        settle()
        return loaded

    @cached_property
    def _all(self) -> Grid:
        model = self._model
        return self.job.grid(model.count_tokens)

    @cached_property
    def _missing(self) -> dict[str, str]:
        return missing_weights(self._all.setting.policies, self._model)

    @cached_property
    def _grid(self) -> Grid:
        grid = self.job.without(self._missing, self._all)
        check_first_contexts(self._model, grid)
        return grid

    @cached_property
    def _identity(self) -> Identity:
        return self._grid.identity(self._model)

    @cached_property
    def _share(self) -> int:
        """Bytes that keys and values may take here: once, as what is free changes while units are done."""
        return self._grid.setting.kv_bound(self._model.device) // self.sharing


def _in_one_line(do: Callable[[], Result]) -> Result:
    try:
        return do()
    except KVBenchError:
        raise
    except BaseException as error:  # an exit, too, would be taken for the end of the worker
        if is_out_of_memory(error):
            raise KVBenchError(
                "the device of a worker is out of memory: start the same command again with a smaller --max-kv-gb, or "
                "more --gpus-per-worker and --device-map auto"
            ) from error
        raise unexpected(error) from None
