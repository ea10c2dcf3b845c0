"""Where the contexts of a run are worked on: in processes of this machine, or on a Ray cluster.

A run asks an executor for its grid and its identity, and hands it units; the executor gives back rows, and the
run alone writes the store. So a worker that dies leaves nothing half done, and a run that dies goes on from its files.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kvbench.executors.unit import Part, Unit
from kvbench.grid import Grid
from kvbench.identity import Identity
from kvbench.rows import Rows

__all__ = ["Answered", "Executor", "Part", "Unit"]

Answered = tuple[Unit, Rows]


class Executor(Protocol):
    """``grid`` and ``identity``: what is run, and what the run is then, as those who run it say."""

    grid: Grid
    identity: Identity

    def map(self, units: Sequence[Unit]) -> AbstractContextManager[Iterator[Answered]]:
        """The rows of each context of the units. Units come in any order, and the contexts of one in theirs. When
        the body is left by an exception, what is being worked on is dropped."""
