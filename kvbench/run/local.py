"""Runs units on this machine: in the calling process, or for a small model in one worker process on each core."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.run.executor import UnitRows
from kvbench.run.forecast import memory_plan, processes_within
from kvbench.run.load import load_job
from kvbench.run.unit import Unit, UnitPart, rows_of
from kvbench.run.workers import Workers
from kvbench.store.run_file import Job
from kvbench.store.tables import RowsByTable
from kvbench.system.console import console


class _Item(NamedTuple):
    """A piece of work for a worker."""

    unit: Unit
    part: UnitPart

    def __str__(self) -> str:
        return str(self.part)


def on_this_machine(job: Job, model: LoadedModel | None = None) -> "LocalExecutor":
    """Loads a job into this process. ``model``: that of another job, which is used if it is the same."""
    loaded = load_job(job, model)
    return LocalExecutor(loaded.model, loaded.grid, job)


class LocalExecutor:
    """Gives contexts to workers one by one, so that no worker waits for the rest of a unit."""

    def __init__(self, model: LoadedModel, grid: Grid, job: Job | None = None) -> None:
        self.model = model
        self.grid = grid
        self.job = job
        self.identity = grid.identity(model)

    @contextmanager
    def map(self, units: Sequence[Unit]) -> Iterator[Iterator[UnitRows]]:
        parts = [_Item(unit, part) for unit in units for part in unit.parts]
        bound = self.grid.setting.kv_bound(self.model.device)
        most = Workers(self.model, len(parts)).count
        workers = Workers(self.model, len(parts), processes_within(self.model, self.grid, bound, most))
        share = bound // workers.count
        console.print(memory_plan(self.model, self.grid, share, workers.count), soft_wrap=True)

        def work(model: LoadedModel, item: _Item) -> RowsByTable:
            return rows_of(model, self.grid, *item, share)

        with workers.map(work, parts) as results:
            yield ((unit, rows) for (unit, _), rows in zip(parts, results, strict=True))
