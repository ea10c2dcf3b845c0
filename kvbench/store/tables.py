"""The tables of a store: each is declared once, and written, read, checked and exported from its declaration.

``contexts`` ← ``questions`` ← ``records``: each row names its row of the table before it. A study declares a table of
its own with :func:`register`, and a run that lists it (``Setting.tables``) fills it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pyarrow as pa
from pydantic import BaseModel

from kvbench.store.record import RANGES, Record, StoredContext, StoredQuestion
from leaderboards.metrics import METRICS, Metric
from policies import KINDS, LazyModule
from policies.declaration.shape import MOST_LAYERS

pc = LazyModule("pyarrow.compute")  # a tenth of a second, which a mistyped option does not wait for

SCHEMA_VERSION = 9
VERSION_KEY = b"kvbench_schema_version"
NOISE = 1e-9  # of a share that was computed from other numbers
_ARROW = {str: pa.string(), bytes: pa.binary(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


@dataclass(frozen=True, eq=False)
class StoredTable:
    """Declares one table."""

    name: str  # of its folder in a run, and of its file among the downloads
    row: type[BaseModel]  # what a row holds: its fields are the columns
    key: tuple[str, ...]  # the columns that tell rows apart; with ``policy`` among them, each policy has its own files
    version: int = SCHEMA_VERSION  # of the row: raised when its columns change
    parent: str | None = None  # the table that each row belongs to a row of, by the columns of that table's key
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # least and most of a column
    # Makes the rows of a kvbench.experiments.collect.FinishedAnswer.
    fill: Callable[[Any], Iterable[BaseModel]] | None = None
    # Makes rows of all finished answers of a prompt at once, where it decodes more of that prompt.
    fill_together: Callable[[Sequence[Any]], Iterable[BaseModel]] | None = None
    # Makes an observer of the decoding of one prompt, from the loaded model, the prompt and the names of all tables
    # that the run fills; none of a context that is not in the sample. Tables with the same function share one.
    # ``fill`` finds it in ``FinishedAnswer.observers``. It sees steps twice where memory ended and a wave is begun
    # again: it keys what it notes by branch, question and step.
    observe: Callable[[Any, Any, Collection[str]], Any] | None = None
    # Scores a row again by a function from the text of an answer to its question to the scores of that text.
    rescore: Callable[[Any, Callable[[str], Mapping[str, Any]]], BaseModel] | None = None
    of_records_with: str = ""  # a column: records without a value there have no rows. None: any may have some
    is_download: bool = True  # whether a site gives it out

    @property
    def by_policy(self) -> bool:
        return "policy" in self.key

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.row.model_fields)

    @property
    def schema(self) -> pa.Schema:
        """Returns the columns with their types, and the version as metadata."""
        return _schema(self.row, self.version)

    def key_of(self, row: BaseModel) -> dict[str, Any]:
        """Returns the columns of this table's key from a row that has them."""
        return {name: getattr(row, name) for name in self.key}

    def of_rows(self, rows: Sequence[BaseModel]) -> pa.Table:
        return pa.Table.from_pylist([row.model_dump() for row in rows], schema=self.schema)


CONTEXTS = StoredTable("contexts", StoredContext, ("task", "example_index"))
QUESTIONS = StoredTable("questions", StoredQuestion, ("task", "question_id"), parent="contexts")
RECORDS = StoredTable(
    "records",
    Record,
    ("task", "question_id", "policy", "level_kind", "level", "repeat"),
    parent="questions",
    ranges=RANGES,
)
TABLES: dict[str, StoredTable] = {table.name: table for table in (CONTEXTS, QUESTIONS, RECORDS)}
JOINED = tuple(dict.fromkeys((*CONTEXTS.columns, *QUESTIONS.columns, *RECORDS.columns)))


def register(table: StoredTable) -> StoredTable:
    """Adds the table of a study. Its parent has to be there already."""
    if table.name in TABLES:
        raise ValueError(f"two tables are named '{table.name}'")
    missing = {*TABLES[table.parent].key} - {*table.columns} if table.parent else set()
    if missing:
        raise ValueError(f"the rows of '{table.name}' do not say {min(missing)} of their {table.parent}")
    TABLES[table.name] = table
    return table


@dataclass
class RowsByTable:
    """Rows by the name of their table, as work on some contexts gives them."""

    tables: dict[str, list[BaseModel]] = field(default_factory=dict)

    def add(self, table: str, rows: Iterable[BaseModel]) -> None:
        self.tables.setdefault(table, []).extend(rows)

    def extend(self, more: "RowsByTable") -> None:
        for name, rows in more.tables.items():
            self.add(name, rows)

    @property
    def records(self) -> list[Record]:
        return [row for row in self.tables.get(RECORDS.name, []) if isinstance(row, Record)]

    @property
    def questions(self) -> list[StoredQuestion]:
        return [row for row in self.tables.get(QUESTIONS.name, []) if isinstance(row, StoredQuestion)]

    def to_tables(self) -> dict[str, pa.Table]:
        return {name: TABLES[name].of_rows(rows) for name, rows in self.tables.items()}


@cache
def _schema(row: type[BaseModel], version: int) -> pa.Schema:
    fields = [pa.field(name, arrow_type(info.annotation)) for name, info in row.model_fields.items()]
    return pa.schema(fields, metadata={VERSION_KEY: str(version)})


def arrow_type(annotation: Any) -> pa.DataType:
    """Returns the column type of a field: unions with None are nullable, literals are strings, lists are lists."""
    if annotation in _ARROW:
        return _ARROW[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return arrow_type(next(part for part in arguments if part is not NoneType))
    if origin is Literal:
        return pa.string()
    if origin is list:
        return pa.list_(arrow_type(arguments[0]))
    raise TypeError(f"a column of a table cannot hold {annotation}")


def joined_schema() -> pa.Schema:
    """Returns the columns of a record joined with its question and context."""
    fields = {name: table.schema.field(name) for table in (RECORDS, QUESTIONS, CONTEXTS) for name in table.columns}
    return pa.schema([fields[name] for name in JOINED], metadata=RECORDS.schema.metadata)


def fault_of_schema(declared: StoredTable, schema: pa.Schema) -> str:
    """Says how the columns of a file differ from those of its table; nothing if all is well."""
    known = declared.schema
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version is not None and version != known.metadata[VERSION_KEY]:
        return f"it has version {version.decode(errors='replace')} of {declared.name}, not {declared.version}"
    if schema.equals(known):  # as nearly every file's is, and a run has hundreds
        return ""
    strange = sorted(set(schema.names) ^ set(known.names))
    if strange:
        verb = "has" if strange[0] in schema.names else "lacks"
        return f"its columns are not those of the schema: it {verb} '{strange[0]}'"
    if schema.names != known.names:
        return "its columns stand in another order than the schema's"
    other = next((field for field in known if not schema.field(field.name).type.equals(field.type)), None)
    return f"its column '{other.name}' is {schema.field(other.name).type}, not {other.type}" if other else ""


def missing_metrics(schema: pa.Schema) -> list[Metric]:
    """Lists the metrics for which records have no column, because an earlier version wrote them."""
    names = set(schema.names)
    return [metric for name, metric in METRICS.items() if name not in names]


def fault_in(declared: StoredTable, table: pa.Table) -> str:
    """Says what no row may hold, of some columns of the schema's types; nothing if all is well."""
    for name in table.column_names:
        column, kinds = table[name], _kinds(declared.row.model_fields[name].annotation)
        if column.null_count and NoneType not in kinds:
            return f"{column.null_count} {declared.name} have no {name}"
        allowed = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
        allowed += KINDS if name == "level_kind" else ()
        strange = set(column.unique().drop_null().to_pylist()) - set(allowed) if allowed else set()
        if strange:
            return f"{name} is '{min(strange)}', not one of {', '.join(allowed)}"
        if pa.types.is_list(column.type) and any(chunk.flatten().null_count for chunk in column.chunks):
            return f"{name} has an empty place"
        if name.endswith("_by_layer") and (pc.max(pc.list_value_length(column)).as_py() or 0) > MOST_LAYERS:
            return f"{name} tells of more than {MOST_LAYERS} layers"
    return ""


def fault_of_values(declared: StoredTable, table: pa.Table) -> str:
    """Names a number that no measure has; nothing if all is well. Of a table without a fault of :func:`fault_in`."""
    for name, (least, most) in declared.ranges.items():
        if name not in table.column_names:
            continue
        column = table[name].drop_null()
        ends = pc.min_max(column).as_py()
        strange = [] if not len(column) else [end for end in ends.values() if not least - NOISE <= end <= most + NOISE]
        if strange or (len(column) and pc.any(pc.is_nan(column)).as_py()):
            return f"{name} is {strange[0] if strange else 'no number'}, not between {least:g} and {most:g}"
    return ""


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """Returns the parts of a union; what is none is its own only part."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
