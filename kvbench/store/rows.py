"""Rows of the tables of a store, as working on some contexts gives them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import BaseModel

from kvbench.store.record import Record
from kvbench.store.stored_question import StoredQuestion
from kvbench.store.tables import QUESTIONS, RECORDS, TABLES


@dataclass
class Rows:
    """Rows by the name of their table."""

    tables: dict[str, list[BaseModel]] = field(default_factory=dict)

    def add(self, table: str, rows: Iterable[BaseModel]) -> None:
        self.tables.setdefault(table, []).extend(rows)

    def extend(self, more: "Rows") -> None:
        for name, rows in more.tables.items():
            self.add(name, rows)

    @property
    def records(self) -> list[Record]:
        return [row for row in self.tables.get(RECORDS.name, []) if isinstance(row, Record)]

    @property
    def questions(self) -> list[StoredQuestion]:
        return [row for row in self.tables.get(QUESTIONS.name, []) if isinstance(row, StoredQuestion)]

    def by_policy(self) -> dict[str, list[Record]]:
        policies = dict.fromkeys(record.policy for record in self.records)
        return {policy: [record for record in self.records if record.policy == policy] for policy in policies}

    def to_tables(self) -> dict[str, pa.Table]:
        return {name: TABLES[name].of_rows(rows) for name, rows in self.tables.items()}
