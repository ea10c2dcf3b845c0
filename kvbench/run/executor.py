"""Executors work on the contexts of a run, in processes of this machine or on a Ray cluster.

A run gets the grid and the identity from an executor and gives it units; the executor returns rows, and the run alone
writes the store. So a worker that dies leaves no half-done work, and a run that dies resumes from its files.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kvbench.experiments.grid import Grid
from kvbench.run.unit import Unit
from kvbench.store.identity import Identity
from kvbench.store.run_file import Job
from kvbench.store.tables import RowsByTable

UnitRows = tuple[Unit, RowsByTable]


class Executor(Protocol):
    """Runs units somewhere."""

    grid: Grid  # the grid that can be run there
    identity: Identity  # of the run that it would write
    job: Job | None  # the options that made the grid; none where Python code made it

    def map(self, units: Sequence[Unit]) -> AbstractContextManager[Iterator[UnitRows]]:
        """Yields the rows of each context. Units come in any order, and the contexts of a unit in their order. An
        exception in the body ends all work."""
