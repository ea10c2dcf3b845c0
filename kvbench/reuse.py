"""Records that another run beside this one has: a policy that is added to a finished run costs itself alone."""

from collections.abc import Collection

import pyarrow as pa

from kvbench.errors import KVBenchError
from kvbench.record import arrow_schema
from kvbench.store import PARTS, RUN_FILE, Store
from leaderboards import Asked

Cell = tuple[str, int, Asked]  # policy, context, what was asked


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
            if other.setting == store.setting:
                self.others.append(other)

    def lend(self, task: str, number: int, policy: str, cells: Collection[Cell]) -> pa.Table:
        """The sound records of some cells in chunk ``number``, of the same task and of the same policy with its
        arguments. A cell comes from the first run that has something of it."""
        missing, found = set(cells), [arrow_schema().empty_table()]
        for other in self.others:
            if not missing:
                break
            if any(
                other.entry(part, name) != self.store.entry(part, name)
                for part, name in zip(PARTS, (task, policy), strict=True)
            ):
                continue
            table = _table(other, task, number, policy)
            wanted = [
                status == "ok" and cell in missing
                for status, cell in zip(_statuses(table), cells_of(table), strict=True)
            ]
            found.append(table.filter(pa.array(wanted, pa.bool_())))
            missing -= set(cells_of(found[-1]))
        return pa.concat_tables(found)


def cells_of(table: pa.Table) -> list[Cell]:
    """The cell that each record belongs to."""
    columns = (table[name].to_pylist() for name in ("policy", "example_index", "ratio", "budget"))
    return [(policy, index, Asked.of(ratio, budget)) for policy, index, ratio, budget in zip(*columns, strict=True)]


def _statuses(table: pa.Table) -> list[str]:
    statuses: list[str] = table["status"].to_pylist()
    return statuses


def _table(store: Store, task: str, number: int, policy: str) -> pa.Table:
    try:
        return store.read_table(store.record_file(task, number, policy))
    except KVBenchError:  # missing, or damaged, which is for its own run to complain of
        return arrow_schema().empty_table()
