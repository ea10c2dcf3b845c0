"""The tables of a store: each is declared once, and written, read, checked and exported from its
declaration.

``contexts`` ← ``questions`` ← ``records``: each row names its row of the table before it. A study
declares a table of its own with :func:`register`, and a run that lists it (``Grid.tables``)
fills it. :func:`find_table` imports that study.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from kvbench.prompts.mode import Mode
from kvbench.studies.registry import FOLDER_OF_TABLE, import_tables_beside
from leaderboards.metrics import METRICS, with_columns
from policies import LEVEL_KINDS, LazyModule, Level, Point
from policies.declaration.shape import MOST_LAYERS

if TYPE_CHECKING:
    import torch

    from kvbench.engine.decode.loop import Observer
    from kvbench.models.load import LoadedModel
    from kvbench.prompts.prompt import Prompt


class StoredContext(BaseModel):
    """One context, stored once for all its questions and policies."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    task_version: str
    example_index: int
    example_id: str
    draw_id: str  # which all ways to write the same draw have
    arm: str  # the way in which the draw is written
    mode: Mode
    context: str
    token_ends: bytes  # where in the context each of its tokens ends, as little-endian uint32
    stated_values: list[str]  # what the context states about anything
    abstentions: list[str]
    answer_marker: str
    defence: str  # the text in it that forbids what an attack asks for, or nothing


class StoredQuestion(BaseModel):
    """One question, stored once for all policies and levels that answer it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    question_id: str
    example_index: int  # of its context
    question: str
    golds: list[str]
    every_gold: bool  # an answer has to name all golds; else any one of them is right
    answer_prefix: str  # the beginning of the sentence that states the answer
    target: str  # what a perfect output would be
    answerable: bool
    direction: str
    answer_type: str
    question_type: str
    hops: int
    # Characters of the context, first and behind the last, one span after the other.
    answer_spans: list[int]
    evidence_spans: list[int]  # likewise
    other_values: list[str]  # right for something else, beside the values that the context states
    directives: list[str]  # each written as ``kind`` or ``kind argument``
    directive_families: list[str]
    protected: str  # the text that an attack is after
    context_tokens: int  # what is compressed; in aware mode the question is part of it
    answer_tokens: int  # how many of these tokens carry the answer
    evidence_tokens: int  # how many of them carry all that is needed for it


class AnswerRow(BaseModel):
    """Names the answer that a row of a study's table belongs to, by the key of its record."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    question_id: str
    policy: str
    level_kind: str
    level: float
    repeat: int


def _metric_columns() -> dict[str, Any]:
    """Returns the type of each metric's column, as :func:`with_columns` takes it."""
    return {metric.name: (metric.type | None, ...) for metric in METRICS.values()}


@with_columns(_metric_columns())
class Record(BaseModel):
    """One question, answered from what one policy leaves at one level. What has no value is null.

    A column for each metric of :mod:`leaderboards.metrics` follows, which says what it is; whether
    each directive is obeyed stands in the order of the question's directives. Of a press that acts
    while an answer is written, what survives, ``realised_ratio``, ``kept_tokens`` and ``kv_bytes``
    are those at its end, with question and answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    question_id: str
    policy: str
    level_kind: str  # with ``level``: what was asked of the policy
    level: float
    repeat: int  # which draw of a random policy, else 0
    # The share of this context that the level asks to remove; null where it removes no tokens.
    ratio: float | None
    status: Literal["ok", "failed"]
    reason: str | None  # why it failed
    press_arguments: str  # JSON, as policies have different ones
    output_text: str | None
    output_token_ids: list[int] | None  # what a replay needs
    ended: bool | None  # with an end token
    # A hash of the keep mask, or of the cache where it is rewritten: equal where the same is read
    # in every layer and head. Null where a step treatment changes what is read.
    cache_digest: str | None
    # How often the batch that it was decoded in was halved, as memory ended.
    wave_halvings: int | None

    @property
    def point(self) -> Point:
        return Point(Level(self.level_kind, self.level), self.repeat)

    if TYPE_CHECKING:  # the metrics, which mypy cannot see

        def __getattr__(self, name: str) -> Any: ...


RANGES = {"ratio": (0.0, 1.0)} | {
    metric.name: metric.bounds for metric in METRICS.values() if metric.bounds is not None
}


@dataclass(frozen=True)
class StoredAnswer:
    """A record with its question and its context."""

    record: Record
    question: StoredQuestion
    context: StoredContext


pc = LazyModule("pyarrow.compute")  # a tenth of a second, which a mistyped option does not wait for
SCHEMA_VERSION = 9
VERSION_KEY = b"kvbench_schema_version"
NOISE = 1e-9  # of a share that was computed from other numbers
_ARROW = {
    str: pa.string(),
    bytes: pa.binary(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}


@dataclass(frozen=True, eq=False)
class StoredTable:
    """Declares one table."""

    name: str  # of its folder in a run, and of its file among the downloads
    row: type[BaseModel]  # what a row holds: its fields are the columns
    # The columns that tell rows apart; with ``policy`` among them, each policy has its own files.
    key: tuple[str, ...]
    # Of the row: raised when its columns change, but for a new column with a default, which earlier
    # files do not have.
    version: int = SCHEMA_VERSION
    # The table that each row belongs to a row of, by the columns of that table's key.
    parent: str | None = None
    # Least and most of a column.
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # Makes the rows of all answers of a prompt, each a ``FinishedAnswer`` of
    # kvbench.experiments.collect, which a store does not know.
    fill: Callable[[Sequence[Any]], Iterable[BaseModel]] | None = None
    # Makes an observer of the decoding of one prompt, or none; tables with the same function share
    # one. ``fill`` finds it in ``FinishedAnswer.observers``. It sees steps twice where memory ended
    # and a wave is begun again: it keys what it notes by branch, question and step.
    observe: "Callable[[LoadedModel, Prompt], Observer | None] | None" = None
    # Prepares the device of a run by its ``Grid``, before the model is loaded; raises
    # :class:`KVBenchError` where the device lacks what the table needs.
    prepare: "Callable[[Any, torch.device], None] | None" = None
    takes_minutes: bool = False  # for a context: a worker is given one context at a time
    is_download: bool = True  # whether a site gives it out

    @property
    def by_policy(self) -> bool:
        return "policy" in self.key

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.row.model_fields)

    @property
    def later_columns(self) -> tuple[str, ...]:
        """Returns the columns that came after the version did: they have a default, and are null in
        earlier files."""
        return tuple(name for name, info in self.row.model_fields.items() if not info.is_required())

    @cached_property
    def schema(self) -> pa.Schema:
        """Returns the columns with their types, and the version as metadata."""
        fields = []
        for name, info in self.row.model_fields.items():
            fields.append(pa.field(name, arrow_type(info.annotation)))
        return pa.schema(fields, metadata={VERSION_KEY: str(self.version)})

    def row_key(self, row: BaseModel) -> dict[str, Any]:
        return {name: getattr(row, name) for name in self.key}

    def to_arrow(self, rows: Iterable[BaseModel]) -> pa.Table:
        return pa.Table.from_pylist([row.model_dump() for row in rows], schema=self.schema)

    def fault_of_schema(self, schema: pa.Schema) -> str:
        """Says how the columns of a file differ from those of its table; nothing if all is well."""
        expected = self.schema
        version = (schema.metadata or {}).get(VERSION_KEY)
        if version is not None and version != expected.metadata[VERSION_KEY]:
            written = version.decode(errors="replace")
            return f"it has version {written} of {self.name}, not {self.version}"
        if strange := sorted(set(schema.names) ^ set(expected.names)):
            verb = "has" if strange[0] in schema.names else "lacks"
            return f"its columns are not those of the schema: it {verb} '{strange[0]}'"
        if schema.names != expected.names:
            return "its columns stand in another order than the schema's"
        for column in expected:
            kind = schema.field(column.name).type
            if kind != column.type:
                return f"its column '{column.name}' is {kind}, not {column.type}"
        return ""

    def fault_in(self, rows: pa.Table) -> str:
        """Says what no row may hold, of some columns of the schema's types; nothing if all is
        well."""
        for name in rows.column_names:
            column, kinds = rows[name], _kinds(self.row.model_fields[name].annotation)
            if column.null_count and NoneType not in kinds:
                return f"{column.null_count} {self.name} have no {name}"
            allowed = list(LEVEL_KINDS) if name == "level_kind" else []
            for kind in kinds:
                if get_origin(kind) is Literal:
                    allowed += get_args(kind)
            if allowed:
                strange = set(column.unique().drop_null().to_pylist()) - set(allowed)
            else:
                strange = set()
            if strange:
                return f"{name} is '{min(strange)}', not one of {', '.join(allowed)}"
            if pa.types.is_list(column.type):
                if pc.list_flatten(column).null_count:
                    return f"{name} has an empty place"
                layers = pc.max(pc.list_value_length(column)).as_py() or 0
                if name.endswith("_by_layer") and layers > MOST_LAYERS:
                    return f"{name} tells of more than {MOST_LAYERS} layers"
        return ""

    def fault_of_values(self, rows: pa.Table) -> str:
        """Names a number that no measure has; nothing if all is well. Of rows without a fault of
        :meth:`fault_in`."""
        for name, (low, high) in self.ranges.items():
            if name not in rows.column_names:
                continue
            column = rows[name].drop_null()
            between = f"not between {low:g} and {high:g}"
            for end in pc.min_max(column).as_py().values():
                if end is not None and not low - NOISE <= end <= high + NOISE:
                    return f"{name} is {end}, {between}"
            if pc.any(pc.is_nan(column)).as_py():
                return f"{name} is no number, {between}"
        return ""


CONTEXTS = StoredTable("contexts", StoredContext, ("task", "example_index"))
QUESTIONS = StoredTable("questions", StoredQuestion, ("task", "question_id"), parent="contexts")
RECORDS = StoredTable(
    "records",
    Record,
    ("task", "question_id", "policy", "level_kind", "level", "repeat"),
    parent="questions",
    ranges=RANGES,
)
# The tables that are imported; those of a study are once somebody asks for one of them.
TABLES: dict[str, StoredTable] = {table.name: table for table in (CONTEXTS, QUESTIONS, RECORDS)}
JOINED = tuple(dict.fromkeys((*CONTEXTS.columns, *QUESTIONS.columns, *RECORDS.columns)))


def is_known(name: str) -> bool:
    """Tells whether there is a table of this name, imported or not."""
    return name in TABLES or name in FOLDER_OF_TABLE


def names_of_tables() -> list[str]:
    """Lists the names of all tables, imported or not."""
    return list(dict.fromkeys((*TABLES, *FOLDER_OF_TABLE)))


def find_table(name: str) -> StoredTable:
    """Finds a table by its name, and imports the study that declares it; ``KeyError`` where there
    is none (:func:`is_known`)."""
    if name not in TABLES and name in FOLDER_OF_TABLE:
        import_tables_beside(name)
    return TABLES[name]


def register(table: StoredTable) -> StoredTable:
    """Adds the table of a study. Its parent has to be there already. Raises :class:`ValueError` for
    a name that is taken, and for rows that do not name their parent."""
    if table.name in TABLES:
        raise ValueError(f"two tables are named '{table.name}'")
    if table.parent:
        missing = {*TABLES[table.parent].key} - {*table.columns}
    else:
        missing = set()
    if missing:
        raise ValueError(
            f"the rows of '{table.name}' do not say {min(missing)} of their {table.parent}"
        )
    TABLES[table.name] = table
    return table


def register_study(
    name: str, row: type[AnswerRow], key: tuple[str, ...], version: int, fill: Any, **more: Any
) -> StoredTable:
    """Adds the table of a study whose rows belong to answers; ``key``: the columns beside that of a
    record."""
    return register(
        StoredTable(name, row, (*RECORDS.key, *key), version, QUESTIONS.name, fill=fill, **more)
    )


@dataclass
class RowsByTable:
    """Rows by the name of their table, as work on some contexts gives them."""

    tables: dict[str, list[BaseModel]] = field(default_factory=dict)

    def add(self, table: str, rows: Iterable[BaseModel]) -> None:
        self.tables.setdefault(table, []).extend(rows)

    @property
    def records(self) -> list[Record]:
        return [row for row in self.tables.get(RECORDS.name, []) if isinstance(row, Record)]

    @property
    def questions(self) -> list[StoredQuestion]:
        return [
            row for row in self.tables.get(QUESTIONS.name, []) if isinstance(row, StoredQuestion)
        ]


def arrow_type(annotation: Any) -> pa.DataType:
    """Returns the column type of a field: unions with None are nullable, literals are strings,
    lists are lists. Raises :class:`TypeError` for what no column can hold."""
    kind = next(part for part in _kinds(annotation) if part is not NoneType)
    if kind in _ARROW:
        return _ARROW[kind]
    if get_origin(kind) is list:
        return pa.list_(arrow_type(get_args(kind)[0]))
    if get_origin(kind) is Literal:
        return pa.string()
    raise TypeError(f"a column of a table cannot hold {annotation}")


def joined_schema() -> pa.Schema:
    """Returns the columns of a record joined with its question and context."""
    fields = {}
    for table in (RECORDS, QUESTIONS, CONTEXTS):
        for column in table.schema:
            fields[column.name] = column
    return pa.schema([fields[name] for name in JOINED], metadata=RECORDS.schema.metadata)


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """Returns the parts of a union; what is none is its own only part."""
    if get_origin(annotation) in (Union, UnionType):
        return get_args(annotation)
    return (annotation,)
