"""Records that another run beside this one has: a policy that is added to a finished run costs itself alone."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kvbench.errors import KVBenchError
from kvbench.record import Record
from kvbench.store import PROVENANCE, RUN_FILE, Store
from leaderboards import Asked

Cell = tuple[str, int, Asked]  # policy, context, what was asked
PARTS = ("tasks", "policies")  # of an identity, of which runs that are otherwise the same may share some
ASIDE = ("contexts", "tasks", "ratios", "budgets")  # of a task or policy: how much of it was run, as records tell


class Lenders:
    """The other runs beside one whose identity is the same but for its tasks and policies: of the same model, code,
    seed and mode."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.others: list[Store] = []
        for path in sorted(store.folder.parent.glob(f"*/{RUN_FILE}")):
            if path.parent.resolve() == store.folder.resolve():
                continue
            try:
                other = Store.open(path.parent)
            except KVBenchError:  # of another version, or damaged: nothing to be had there
                continue
            if _rest(other) == _rest(store):
                self.others.append(other)

    def lend(self, task: str, number: int, policy: str, cells: Collection[Cell]) -> Iterator[Record]:
        """The sound records of some cells in chunk ``number``, of the same task and of the same policy with its
        arguments. A cell comes from the first run that has something of it."""
        missing = set(cells)
        for other in self.others:
            if not missing:
                return
            if any(
                _entry(other, part, name) != _entry(self.store, part, name)
                for part, name in zip(PARTS, (task, policy), strict=True)
            ):
                continue
            sound = [record for record in _records(other, task, number, policy) if record.status == "ok"]
            here = [record for record in sound if cell_of(record) in missing]
            missing -= {cell_of(record) for record in here}
            yield from here


def cell_of(record: Record) -> Cell:
    return record.policy, record.example_index, Asked.of(record.ratio, record.budget)


def _rest(store: Store) -> dict[str, Any]:
    return {name: part for name, part in store.run.identity.items() if name not in (*PARTS, *PROVENANCE)}


def _entry(store: Store, part: str, name: str) -> Mapping[str, Any] | None:
    found = (entry for entry in store.run.identity[part] if entry["name"] == name)
    return next(({key: value for key, value in entry.items() if key not in ASIDE} for entry in found), None)


def _records(store: Store, task: str, number: int, policy: str) -> list[Record]:
    try:
        return store.read_records(store.record_file(task, number, policy))
    except KVBenchError:  # missing, or damaged, which is for its own run to complain of
        return []
