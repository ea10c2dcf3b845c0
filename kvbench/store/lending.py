"""Takes rows from another run beside this one: a policy that is added to a finished run costs itself alone."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from kvbench.store.identity import Identity
from kvbench.store.run_file import RUN_FILE
from kvbench.store.store import Store, together_once
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS, TABLES, StoredTable
from kvbench.system.errors import KVBenchError
from policies import Level, Point

Cell = tuple[str, int, Point]  # policy, context, level and draw
CELL = ("policy", "question_id", "level_kind", "level", "repeat")  # the columns that tell of it
# What made a run, by the field of its identity that says it: another may write other records.
MAKERS = {"source": "code", "kvbench_version": "version of kvbench", "packages": "versions of packages"}
Tables = dict[str, pa.Table]  # by name


class Lenders:
    """The other runs beside one whose identity is the same but for its tasks, policies and tables of studies: of the
    same model, code, seed and mode."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.others: list[Store] = []
        self.made_otherwise: dict[Path, list[str]] = {}  # runs that could lend had the same made them; what differs
        mine = store.identity.setting | {"tables": ()}
        for path in sorted(store.folder.parent.glob(f"*/{RUN_FILE}")):
            if path.parent.resolve() == store.folder.resolve():
                continue
            try:
                other = Store.open(path.parent)
            except KVBenchError:  # of another version, or damaged: nothing to be had there
                continue
            theirs = other.identity.setting | {"tables": ()}
            differing = [name for name in mine if mine[name] != theirs[name]]
            if not differing:
                self.others.append(other)
            elif set(differing) <= set(MAKERS) and _share_work(other.identity, store.identity):
                self.made_otherwise[path.parent] = differing

    @property
    def refusal(self) -> str:
        """Says in a line which runs beside this one have the same cells and are not used, and why; empty if none."""
        if not self.made_otherwise:
            return ""
        folders = ", ".join(map(str, self.made_otherwise))
        makers = dict.fromkeys(MAKERS[name] for differing in self.made_otherwise.values() for name in differing)
        return f"not used, since other {' and '.join(makers)} made it: {folders}"

    def lend(self, task: str, number: int, policy: str, cells: Collection[Cell]) -> Tables:
        """Reads the sound records of some cells in chunk ``number``, of the same task and of the same policy with its
        arguments, and the rows of other tables that belong to them. A cell comes from the first run that has something
        of it."""
        missing, loans = set(cells), [no_rows(self.store)]
        for other in self.others:
            if not missing:
                break
            if not _same_work(other.identity, self.store.identity, task, policy):
                continue
            tables = _tables(self.store, other, task, number, policy)
            records = tables[RECORDS.name]
            whole = _without_rows_in(records, [table for table in self.store.tables if table.name not in tables])
            lendable = [
                status == "ok" and cell in missing and nothing_lacks
                for status, cell, nothing_lacks in zip(
                    records["status"].to_pylist(), cells_of(tables), whole, strict=True
                )
            ]
            loans.append(_keep_records(tables, lendable))
            missing -= set(cells_of(loans[-1]))
        return join_parts(loans)


def _same_work(one: Identity, other: Identity, task: str, policy: str) -> bool:
    """Tells whether two runs have a task with the same contexts, and a policy that treats them alike."""
    tasks, policies = (one.task(task), other.task(task)), (one.policy(policy), other.policy(policy))
    if tasks[0] is None or tasks[1] is None or policies[0] is None or policies[1] is None:
        return False
    return tasks[0].makes_the_contexts_of(tasks[1]) and policies[0].treats_like(policies[1])


def _share_work(one: Identity, other: Identity) -> bool:
    """Tells whether two runs have a policy and a task in common."""
    return any(_same_work(one, other, task.name, policy.name) for task in one.tasks for policy in one.policies)


def no_rows(store: Store) -> Tables:
    return {table.name: table.schema.empty_table() for table in store.tables}


def join_parts(parts: Sequence[Mapping[str, pa.Table]]) -> Tables:
    """Joins the rows of several parts; of a row that is there twice, it keeps the first."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: together_once(TABLES[name], [part[name] for part in parts if name in part]) for name in names}


def cells_of(tables: Mapping[str, pa.Table]) -> list[Cell]:
    """Names the cell that each record belongs to."""
    questions = tables[QUESTIONS.name]
    indices = dict(zip(questions["question_id"].to_pylist(), questions["example_index"].to_pylist(), strict=True))
    columns = (tables[RECORDS.name][name].to_pylist() for name in CELL)
    return [
        (policy, indices[question], Point(Level(kind, value), repeat))
        for policy, question, kind, value, repeat in zip(*columns, strict=True)
    ]


def _keep_records(tables: Mapping[str, pa.Table], mask: Sequence[bool]) -> Tables:
    """Keeps some records, and the rows of other tables that belong to them: what they are about, what studies add."""
    kept = {RECORDS.name: tables[RECORDS.name].filter(pa.array(mask, pa.bool_()))}
    kept[QUESTIONS.name] = _rows_with_keys_of(tables[QUESTIONS.name], kept[RECORDS.name], QUESTIONS.key)
    kept[CONTEXTS.name] = _rows_with_keys_of(tables[CONTEXTS.name], kept[QUESTIONS.name], CONTEXTS.key)
    for name in tables:
        parent = TABLES[name].parent
        if name not in kept and parent is not None:
            kept[name] = _rows_with_keys_of(tables[name], kept[parent], TABLES[parent].key)
    return kept


def _rows_with_keys_of(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """Returns the rows whose key some others have."""
    mine, theirs = (pd.MultiIndex.from_frame(table.select(list(key)).to_pandas()) for table in (rows, others))
    return rows.filter(pa.array(mine.isin(theirs), pa.bool_()))


def _without_rows_in(records: pa.Table, tables: Sequence[StoredTable]) -> list[bool]:
    """Tells for each record whether it has no rows in any of some tables, which its run did not fill."""
    absent = [
        records[table.of_records_with].is_null().to_pylist() if table.of_records_with else None for table in tables
    ]
    return [all(of is not None and of[place] for of in absent) for place in range(len(records))]


def _tables(store: Store, other: Store, task: str, number: int, policy: str) -> Tables:
    """Reads of another run those tables that a run has too."""
    names = {table.name for table in store.tables}
    both = [table for table in other.tables if table.name in names]
    try:
        tables = {table.name: other.read(table, other.path(table, task, number, policy)) for table in both}
        cells_of(tables)
    except (KVBenchError, KeyError):  # missing, or damaged, which is for its own run to complain of
        return no_rows(store)
    return tables
