"""A worker on another machine makes the grid of a job, loads its model once, and runs units."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch

from kvbench.run.forecast import memory_plan
from kvbench.run.load import LoadedJob, load_job
from kvbench.run.unit import Unit, rows_of
from kvbench.store.identity import Identity
from kvbench.store.run_file import Job
from kvbench.store.tables import RowsByTable
from kvbench.system.errors import KVBenchError, unexpected_error
from kvbench.system.memory import is_out_of_memory

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

    def work(self, unit: Unit, expected: Identity) -> list[RowsByTable]:
        """Returns the rows of each context of a unit; raises :class:`KVBenchError` if they belong to another run."""
        return _in_one_line(lambda: self._work(unit, expected))

    def _prepare(self) -> Readiness:
        loaded = self._loaded_job
        memory = memory_plan(loaded.model, loaded.grid, self._share, self.sharing)
        return Readiness(self._identity, loaded.missing, memory)

    def _work(self, unit: Unit, expected: Identity) -> list[RowsByTable]:
        if names := self._identity.differences(expected):
            here, there = (getattr(identity, names[0]) for identity in (self._identity, expected))
            raise KVBenchError(
                f"the worker on {platform.node()} would write another run ({names[0]}: {here} instead of {there}): all "
                "machines need the same kvbench, packages, model and kind of device"
            )
        return [rows_of(self._loaded_job.model, self._loaded_job.grid, unit, part, self._share) for part in unit.parts]

    @cached_property
    def _loaded_job(self) -> LoadedJob:
        if self.folder.is_dir():
            os.chdir(self.folder)
        torch.set_num_threads(self.threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return load_job(self.job)

    @cached_property
    def _identity(self) -> Identity:
        return self._loaded_job.grid.identity(self._loaded_job.model)

    @cached_property
    def _share(self) -> int:
        """Returns the bytes that keys and values may take here. It is computed once, as free memory changes during
        work."""
        return self._loaded_job.grid.setting.kv_bound(self._loaded_job.model.device) // self.sharing


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
        raise unexpected_error(error) from None
