"""A worker somewhere else: it makes the grid of a job, loads its model once, and does units of it."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch

from kvbench.catalogue import missing_weights
from kvbench.errors import KVBenchError, unexpected
from kvbench.executors.unit import Unit, check_first_contexts, records_of
from kvbench.grid import Grid
from kvbench.identity import Identity
from kvbench.job import Job
from kvbench.models import LoadedModel
from kvbench.process import settle
from kvbench.record import Record
from kvbench.store import PROVENANCE

Result = TypeVar("Result")


@dataclass(frozen=True)
class Readiness:
    """What a worker says when its model is loaded. ``missing``: policies without their weights, and why."""

    identity: Identity
    missing: dict[str, str]


class Worker:
    """``folder``: where relative paths of the job, such as those of plug-ins, begin. All that it raises is a
    :class:`KVBenchError`, which any process can read."""

    def __init__(self, job: Job, folder: Path, threads: int) -> None:
        self.job, self.folder, self.threads = job, folder, threads

    def prepare(self) -> Readiness:
        """Loads the model."""
        return _in_one_line(lambda: Readiness(self._grid.identity(self._model), self._missing))

    def work(self, unit: Unit, expected: Identity) -> list[list[Record]]:
        """The records of each context of a unit; :class:`KVBenchError` if they would belong to another run."""
        return _in_one_line(lambda: self._work(unit, expected))

    def _work(self, unit: Unit, expected: Identity) -> list[list[Record]]:
        own, asked = (identity.model_dump(exclude=set(PROVENANCE)) for identity in (self._identity, expected))
        if differing := [name for name in own if own[name] != asked[name]]:
            raise KVBenchError(
                f"the worker on {platform.node()} would write another run ({differing[0]}: {own[differing[0]]} instead "
                f"of {asked[differing[0]]}): all machines need the same kvbench, packages, model and kind of device"
            )
        return [records_of(self._model, self._grid, part) for part in unit.parts]

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


def _in_one_line(do: Callable[[], Result]) -> Result:
    try:
        return do()
    except KVBenchError:
        raise
    except torch.OutOfMemoryError as error:
        raise KVBenchError(
            "the device of a worker is out of memory: start the same command again with a smaller --max-kv-gb, or "
            "more --gpus-per-worker and --device-map auto"
        ) from error
    except BaseException as error:  # an exit, too, would be taken for the end of the worker
        raise unexpected(error) from None
