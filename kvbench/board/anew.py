"""Has the methods of the board answer anew, on this machine, the contexts that it answers in another
way than the machine whose answers are stored."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kvbench.board.pieces import Piece
from kvbench.execution.execute import complete_contexts
from kvbench.execution.local import LocalExecutor
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.grid import planned_on
from kvbench.store.store import Store
from kvbench.system.console import console


def without_code_of_others(pieces: Sequence[Piece]) -> tuple[list[Piece], list[str]]:
    """Leaves out presses that others sent, whose code is not run unasked. Returns a warning where
    there are such."""
    ours: list[Piece] = []
    names: list[str] = []
    for piece in pieces:
        if any(policy.origin for policy in piece.store.identity.policies):
            names.append(piece.store.folder.name)
        else:
            ours.append(piece)
    if not names:
        return ours, []
    reason = "some contexts are answered anew, and code from outside is not run unasked"
    return ours, [f"{', '.join(names)}: left out, as {reason}"]


def answer_anew(
    pieces: Sequence[Piece],
    contexts: Mapping[str, Sequence[int]],
    machine: LocalExecutor,
    folder: Path,
) -> list[Store]:
    """Has all methods of some packed runs answer contexts, by task their numbers. Each run keeps the
    company that its methods had, and gets a folder of its own. ``machine``: where the press was
    asked. Raises :class:`KVBenchError` for what cannot run there."""
    stores: list[Store] = []
    for piece in pieces:
        identity = piece.store.identity
        policies = {policy.name: find_policy(policy.name) for policy in identity.policies}
        for planned in identity.tasks:
            if planned.name not in contexts:
                continue
            task = machine.grid.task(planned.name)
            of_task, points = planned_on(identity, task.name, policies)
            grid = replace(
                machine.grid, tasks=[(task, planned.contexts)], policies=of_task, points=points
            )
            numbers = contexts[task.name]
            console.print(
                f"{task.name}: {len(of_task)} policies answer {len(numbers)} of the contexts anew"
            )
            place = folder / f"{piece.store.folder.name}-{task.name}"
            executor = LocalExecutor(machine.model, grid)
            stores.append(complete_contexts(executor, place, {task.name: numbers}))
    return stores
