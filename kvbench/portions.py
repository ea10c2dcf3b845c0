"""What of a grid is not stored yet, chunk by chunk, and what other runs lend of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from datasets_gen import Task
from kvbench.grid import Grid
from kvbench.record import Record
from kvbench.reuse import Lenders, asked_of
from kvbench.setting import Setting
from kvbench.store import Store
from leaderboards import Asked
from policies import Policy

CONTEXTS_IN_CHUNK = 5

Cell = tuple[str, int, Asked]  # policy, context, what was asked


@dataclass
class Portion:
    """A chunk of contexts of one task, and the policies whose record files of it are missing. ``lent``: what other runs
    have of these, whole cells each."""

    task: Task
    number: int
    chunk: range
    policies: list[Policy] = field(default_factory=list)
    lent: dict[Cell, list[Record]] = field(default_factory=dict)

    def setting_for(self, grid: Grid, index: int) -> Setting | None:
        """What is to be run of one context; None if all of it is lent."""
        lacking = {
            policy.name: [level for level in grid.levels(policy) if (policy.name, index, level) not in self.lent]
            for policy in self.policies
        }
        policies = [policy for policy in self.policies if lacking[policy.name]]
        levels = {level for missing in lacking.values() for level in missing}
        return grid.setting.at(levels).only(policies) if policies else None

    def completed(self, found: Sequence[Record]) -> dict[str, list[Record]]:
        """By policy what was run and what was lent; what is there twice was run."""
        cells = dict(self.lent)
        for record in found:
            cells.pop(cell_of(record), None)
        everything = [*found, *(record for own in cells.values() for record in own)]
        return {p.name: [record for record in everything if record.policy == p.name] for p in self.policies}


def cell_of(record: Record) -> Cell:
    return record.policy, record.example_index, asked_of(record)


def chunks(contexts: int) -> list[range]:
    """Contexts in portions: a portion is what a kill can lose."""
    return [range(first, min(first + CONTEXTS_IN_CHUNK, contexts)) for first in range(0, contexts, CONTEXTS_IN_CHUNK)]


def lacking(grid: Grid, store: Store) -> list[Portion]:
    """What is not stored, nor wholly lent; what is lent whole is stored at once."""
    lenders = Lenders(store)
    return [
        portion
        for task, contexts in grid.tasks
        for number, chunk in enumerate(chunks(contexts))
        if (portion := _portion(grid, store, lenders, task, number, chunk)).policies
    ]


def _portion(grid: Grid, store: Store, lenders: Lenders, task: Task, number: int, chunk: range) -> Portion:
    portion = Portion(task, number, chunk)
    questions = {index: len(grid.example(task, index).questions) for index in chunk}
    for policy in grid.policies_on(task):
        levels = grid.levels(policy)
        if store.has(task.name, number, policy.name, sum(questions.values()) * len(levels)):
            continue
        cells: dict[Cell, list[Record]] = {}
        for record in lenders.lend(task.name, number, policy.name):
            if record.example_index in questions and asked_of(record) in levels:
                cells.setdefault(cell_of(record), []).append(record)
        whole = {cell: own for cell, own in cells.items() if len(own) == questions[cell[1]]}
        if len(whole) == len(questions) * len(levels):
            store.write_records(
                store.record_file(task.name, number, policy.name), [one for own in whole.values() for one in own]
            )
        else:
            portion.policies.append(policy)
            portion.lent |= whole
    return portion
