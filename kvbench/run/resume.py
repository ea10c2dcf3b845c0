"""Finds the chunks of a grid that are not stored yet, and what other runs lend of them."""

from collections import Counter
from dataclasses import dataclass, field

from datasets_gen import Task
from kvbench.experiments.grid import Grid
from kvbench.run.unit import Unit, UnitPart
from kvbench.store.lending import Cell, Lenders, Tables, cells_of, join_parts, no_rows
from kvbench.store.store import Store
from kvbench.store.tables import RowsByTable
from policies import Policy

CONTEXTS_IN_CHUNK = 5


@dataclass
class MissingChunk:
    """A chunk of contexts of one task of which records are missing."""

    task: Task
    number: int
    chunk: range
    policies: list[Policy] = field(default_factory=list)  # whose record files are missing
    loans: set[Cell] = field(default_factory=set)  # cells that other runs have: their records are read when needed

    def unit(self, grid: Grid) -> Unit:
        """Returns what is to be run, without the contexts that are wholly on loan."""
        parts = (self._make_part(grid, index) for index in self.chunk)
        return Unit(self.task.name, self.number, tuple(part for part in parts if part.policies))

    def _make_part(self, grid: Grid, index: int) -> UnitPart:
        missing = {
            policy.name: [point for point in grid.points(policy) if (policy.name, index, point) not in self.loans]
            for policy in self.policies
        }
        policies = tuple(name for name, points in missing.items() if points)
        points = dict.fromkeys(point for of_policy in missing.values() for point in of_policy)
        return UnitPart(self.task.name, index, policies, tuple(points))

    def add_loans(self, rows: RowsByTable, lenders: Lenders) -> Tables:
        """Joins the rows that were run with those on loan; a row that is in both is the one that was run."""
        fresh = no_rows(lenders.store) | rows.to_tables()
        missing = self.loans - set(cells_of(fresh))
        loans = (
            lenders.lend(self.task.name, self.number, policy.name, [cell for cell in missing if cell[0] == policy.name])
            for policy in self.policies
        )
        return join_parts([fresh, *loans])


def chunks(contexts: int) -> list[range]:
    """Divides contexts into chunks: a chunk is what a kill can lose."""
    return [range(first, min(first + CONTEXTS_IN_CHUNK, contexts)) for first in range(0, contexts, CONTEXTS_IN_CHUNK)]


def missing_chunks(grid: Grid, store: Store, lenders: Lenders) -> list[MissingChunk]:
    """Lists the chunks that are neither stored nor wholly on loan; what is wholly on loan is stored at once."""
    return [
        missing
        for task, contexts in grid.tasks
        for number, chunk in enumerate(chunks(contexts))
        if (missing := _missing_chunk(grid, store, lenders, task, number, chunk)).policies
    ]


def _missing_chunk(grid: Grid, store: Store, lenders: Lenders, task: Task, number: int, chunk: range) -> MissingChunk:
    missing = MissingChunk(task, number, chunk)
    questions = {index: grid.questions(task, index) for index in chunk}
    described = store.has_questions(task.name, number, len(chunk), sum(questions.values()))
    for policy in grid.policies_on(task):
        cells = {(policy.name, index, point) for index in chunk for point in grid.points(policy)}
        if described and store.has(task.name, number, policy.name, sum(questions[index] for _, index, _ in cells)):
            continue
        loan = lenders.lend(task.name, number, policy.name, cells)
        counts = Counter(cells_of(loan))
        whole = {cell for cell, count in counts.items() if count == questions[cell[1]]}
        if whole == cells:
            store.write_chunk(task.name, number, loan)
        else:
            missing.policies.append(policy)
            missing.loans |= whole
    return missing
