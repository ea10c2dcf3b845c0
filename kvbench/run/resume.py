"""What of a grid is not stored yet, chunk by chunk, and what other runs lend of it."""

from collections import Counter
from dataclasses import dataclass, field

from datasets_gen import Task
from kvbench.experiments.grid import Grid
from kvbench.run.unit import Part, Unit
from kvbench.store.lending import Cell, Lenders, Tables, cells_of, no_rows, together
from kvbench.store.rows import Rows
from kvbench.store.store import Store
from policies import Policy

CONTEXTS_IN_CHUNK = 5


@dataclass
class Portion:
    """A chunk of contexts of one task, and the policies whose record files of it are missing. ``lent``: the cells of
    these that other runs have; their records are read when they are needed."""

    task: Task
    number: int
    chunk: range
    policies: list[Policy] = field(default_factory=list)
    lent: set[Cell] = field(default_factory=set)

    def unit(self, grid: Grid) -> Unit:
        """What is to be run of it, without the contexts that are wholly lent."""
        parts = (self._part(grid, index) for index in self.chunk)
        return Unit(self.task.name, self.number, tuple(part for part in parts if part.policies))

    def _part(self, grid: Grid, index: int) -> Part:
        lacking = {
            policy.name: [point for point in grid.points(policy) if (policy.name, index, point) not in self.lent]
            for policy in self.policies
        }
        policies = tuple(name for name, missing in lacking.items() if missing)
        points = dict.fromkeys(point for missing in lacking.values() for point in missing)
        return Part(self.task.name, index, policies, tuple(points))

    def completed(self, rows: Rows, lenders: Lenders) -> Tables:
        """What was run and what is lent; what is there twice was run."""
        own = no_rows(lenders.store) | rows.to_tables()
        missing = self.lent - set(cells_of(own))
        lent = (
            lenders.lend(self.task.name, self.number, policy.name, [cell for cell in missing if cell[0] == policy.name])
            for policy in self.policies
        )
        return together([own, *lent])


def chunks(contexts: int) -> list[range]:
    """Contexts in portions: a portion is what a kill can lose."""
    return [range(first, min(first + CONTEXTS_IN_CHUNK, contexts)) for first in range(0, contexts, CONTEXTS_IN_CHUNK)]


def lacking(grid: Grid, store: Store, lenders: Lenders) -> list[Portion]:
    """What is not stored, nor wholly lent; what is lent whole is stored at once."""
    return [
        portion
        for task, contexts in grid.tasks
        for number, chunk in enumerate(chunks(contexts))
        if (portion := _portion(grid, store, lenders, task, number, chunk)).policies
    ]


def _portion(grid: Grid, store: Store, lenders: Lenders, task: Task, number: int, chunk: range) -> Portion:
    portion = Portion(task, number, chunk)
    questions = {index: grid.questions(task, index) for index in chunk}
    described = store.has_questions(task.name, number, len(chunk), sum(questions.values()))
    for policy in grid.policies_on(task):
        cells = {(policy.name, index, point) for index in chunk for point in grid.points(policy)}
        if described and store.has(task.name, number, policy.name, sum(questions[index] for _, index, _ in cells)):
            continue
        lent = lenders.lend(task.name, number, policy.name, cells)
        counts = Counter(cells_of(lent))
        whole = {cell for cell, count in counts.items() if count == questions[cell[1]]}
        if whole == cells:
            store.write_chunk(task.name, number, lent)
        else:
            portion.policies.append(policy)
            portion.lent |= whole
    return portion
