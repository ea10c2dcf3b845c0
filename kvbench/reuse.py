"""Records that another run beside this one has: a policy that is added to a finished run costs itself alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvbench.errors import KVBenchError
from kvbench.record import Record
from kvbench.store import PROVENANCE, RUN_FILE, Store
from leaderboards import Asked

PARTS = ("tasks", "policies")  # of an identity, of which runs that are otherwise the same may share some
ASIDE = (
    "contexts",
    "tasks",
    "ratios",
    "budgets",
)  # of a task or policy: how much of it was run, which the records tell


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

    def lend(self, task: str, number: int, policy: str, levels: Sequence[Asked], contexts: range, count: int) -> bool:
        """Copies the ``count`` records of some contexts, which are in chunk ``number``, from a run that has them all,
        of the same task and of the same policy with its arguments. Whether there was one."""
        for other in self.others:
            if any(
                _entry(other, part, name) != _entry(self.store, part, name)
                for part, name in zip(PARTS, (task, policy), strict=True)
            ):
                continue
            wanted = [
                record
                for record in _records(other, task, number, policy)
                if record.status == "ok"
                and record.example_index in contexts
                and Asked.of(record.ratio, record.budget) in levels
            ]
            if len(wanted) == count:
                self.store.write_records(self.store.record_file(task, number, policy), wanted)
                return True
        return False


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
