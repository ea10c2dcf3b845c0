"""On this machine: the calling process, or one worker process for each core where the model is small."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kvbench.executors import Answered
from kvbench.executors.unit import Part, Unit, records_of
from kvbench.grid import Grid
from kvbench.models import LoadedModel
from kvbench.record import Record
from kvbench.workers import Workers


class LocalExecutor:
    """Contexts go to the workers one by one, so that none of them waits for the rest of a unit."""

    def __init__(self, model: LoadedModel, grid: Grid) -> None:
        self.model = model
        self.grid = grid
        self.identity = grid.identity(model)

    @contextmanager
    def map(self, units: Sequence[Unit]) -> Iterator[Iterator[Answered]]:
        parts = [(unit, part) for unit in units for part in unit.parts]
        workers = Workers(self.model, len(parts))

        def work(model: LoadedModel, item: tuple[Unit, Part]) -> list[Record]:
            return records_of(model, self.grid, item[1], workers.count)

        with workers.map(work, parts) as results:
            yield ((unit, records) for (unit, _), records in zip(parts, results, strict=True))
