"""A worker on another machine makes the grid of a job, loads its model once, and runs units."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch

from kvbench.experiments.grid import Grid
from kvbench.experiments.identify import Identity
from kvbench.experiments.job import Job
from kvbench.models.load import LoadedModel, missing_weights
from kvbench.run.forecast import memory_plan
from kvbench.run.unit import Unit, check_first_contexts, rows_of
from kvbench.store.rows import Rows
from kvbench.store.store import PROVENANCE
from kvbench.system.errors import KVBenchError, unexpected
from kvbench.system.memory import is_out_of_memory
from kvbench.system.process import settle

Result = TypeVar("Result")


@dataclass(frozen=True)
class Readiness:
    """The report of a worker that has loaded its model."""

    identity: Identity  # of the run that it would write
    missing: dict[str, str]  # policies without weights, with the reason
    memory: str  # a line about the memory that it needs


class Worker:
    """Runs units. Relative paths of the job, such as plug-ins, begin at ``folder``; ``sharing`` workers have the same
    memory. It raises only :class:`KVBenchError`, which any process can read."""

    def __init__(self, job: Job, folder: Path, threads: int, sharing: int = 1) -> None:
        self.job, self.folder, self.threads, self.sharing = job, folder, threads, sharing

    def prepare(self) -> Readiness:
        """Loads the model and reports."""
        return _in_one_line(self._prepare)

    def work(self, unit: Unit, expected: Identity) -> list[Rows]:
        """Returns the rows of each context of a unit; raises :class:`KVBenchError` if they belong to another run."""
        return _in_one_line(lambda: self._work(unit, expected))

    def _prepare(self) -> Readiness:
        memory = memory_plan(self._model, self._grid, self._share, self.sharing)
        return Readiness(self._identity, self._missing, memory)

    def _work(self, unit: Unit, expected: Identity) -> list[Rows]:
        here, there = (identity.model_dump(exclude=set(PROVENANCE)) for identity in (self._identity, expected))
        if different := [name for name in here if here[name] != there[name]]:
            raise KVBenchError(
                f"the worker on {platform.node()} would write another run ({different[0]}: {here[different[0]]} "
                f"instead of {there[different[0]]}): all machines need the same kvbench, packages, model and kind of "
                "device"
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
        """The bytes that keys and values may take here. It is computed once, as free memory changes during work."""
        return self._grid.setting.kv_bound(self._model.device) // self.sharing


def _in_one_line(do: Callable[[], Result]) -> Result:
    try:
        return do()
    except KVBenchError:
        raise
    except BaseException as error:  # also an exit, which would look like the end of the worker
        if is_out_of_memory(error):
            raise KVBenchError(
                "the device of a worker is out of memory: start the same command again with a smaller --max-kv-gb, or "
                "more --gpus-per-worker and --device-map auto"
            ) from error
        raise unexpected(error) from None
