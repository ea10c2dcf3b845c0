"""One row of results: identity, output, scores, routing metrics, costs. Typed, versioned and closed."""

from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from kvbench.metrics.text import HallucinationKind

SCHEMA_VERSION = 7


class Record(BaseModel):
    """One question, answered from one branch. What has no value is null, and ``reason`` says why where it failed.

    ``budget``: the tokens of a head that were asked for, if a budget was and not a ratio; ``ratio`` is then what that
    is of this context. ``kept_tokens``: those of a head that are read, the mean over layers and heads.

    Columns as in ``kvbench.metrics.registry``; f1 and em in percent, rates in [0, 1]. ``directives`` are written as
    ``kind`` or ``kind argument``, and whether each is obeyed stands in their order. ``arm`` is the way in which a draw
    is written, and all its ways have its ``draw_id``. ``target`` is what a perfect output would be; ``protected`` the
    text that an attack is after and ``defence`` the one that forbids it, empty for other questions. ``context``,
    ``question`` and ``output_token_ids`` are what a replay needs. ``answer_spans`` and ``evidence_spans``: characters
    of the context, first and behind the last, one span after the other. ``token_ends``: where in the context each of
    its tokens ends, as little-endian uint32; ``token_kept``: a byte for each, the share of the slots that keep it in
    255ths. ``press_arguments`` is JSON: they differ between policies. ``cache_digest`` is a hash of the keep mask, or
    of the cache itself where it is rewritten: equal where the same is read in every layer and head. Of a press that
    acts while an answer is written, what survives, ``realised_ratio``, ``kept_tokens`` and ``kv_bytes`` are those at
    its end, with question and answer. ``wave_halvings``: how often the batch that it was decoded in had been halved, as
    memory ended.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    task_version: str
    example_id: str
    example_index: int
    draw_id: str
    arm: str
    question_id: str
    mode: Literal["agnostic", "aware"]
    policy: str
    ratio: float
    budget: int | None
    status: Literal["ok", "failed"]
    reason: str | None
    context: str
    token_ends: bytes
    question: str
    golds: list[str]
    target: str
    answerable: bool
    direction: str
    answer_type: str
    question_type: str
    hops: int
    answer_spans: list[int]
    evidence_spans: list[int]
    stated_values: list[str]
    abstentions: list[str]
    answer_marker: str
    directives: list[str]
    directive_families: list[str]
    protected: str
    defence: str
    press_arguments: str
    context_tokens: int
    answer_tokens: int
    evidence_tokens: int
    output_text: str | None
    output_token_ids: list[int] | None
    ended: bool | None
    f1: float | None
    em: float | None
    abstained: bool | None
    hallucinated: bool | None
    hallucination_kind: HallucinationKind | None
    directives_obeyed: float | None
    directives_strict: list[bool] | None
    directives_loose: list[bool] | None
    leakage: float | None
    defence_leakage: float | None
    refused: bool | None
    eviction_rate: float | None
    ger: float | None
    ger_by_layer: list[float] | None
    slot_coverage: float | None
    token_kept: bytes | None
    defence_kept: float | None
    defence_kept_by_layer: list[float] | None
    directives_kept: float | None
    directives_kept_by_layer: list[float] | None
    cache_digest: str | None
    realised_ratio: float | None
    kept_tokens: float | None
    kv_bytes: int | None
    prefill_seconds: float
    compression_seconds: float | None
    decode_seconds: float | None
    wave_halvings: int | None


NOISE = 1e-9  # of a share that was computed from other numbers
SHARES = (
    *("ratio", "leakage", "defence_leakage", "directives_obeyed", "eviction_rate", "ger", "slot_coverage"),
    *("realised_ratio", "defence_kept", "directives_kept"),
)
RANGES = dict.fromkeys(("f1", "em"), (0.0, 100.0)) | dict.fromkeys(SHARES, (0.0, 1.0))
_ARROW = {str: pa.string(), bytes: pa.binary(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def _arrow_type(annotation: Any) -> pa.DataType:
    """The column type of a field: unions with None are nullable, literals are strings, lists are lists."""
    if annotation in _ARROW:
        return _ARROW[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _arrow_type(next(part for part in arguments if part is not NoneType))
    if origin is Literal:
        return pa.string()
    if origin is list:
        return pa.list_(_arrow_type(arguments[0]))
    raise TypeError(f"a record column cannot hold {annotation}")


@cache
def arrow_schema() -> pa.Schema:
    """The parquet schema of :class:`Record`, with the schema version as metadata."""
    fields = [pa.field(name, _arrow_type(info.annotation)) for name, info in Record.model_fields.items()]
    return pa.schema(fields, metadata={"kvbench_schema_version": str(SCHEMA_VERSION)})


def fault_of_schema(schema: pa.Schema) -> str:
    """What columns differ from those of records; nothing if all is well."""
    known = arrow_schema()
    strange = sorted(set(schema.names) ^ set(known.names))
    if strange:
        told = f"has '{strange[0]}'" if strange[0] in schema.names else f"lacks '{strange[0]}'"
        return f"its columns are not those of the schema: it {told}"
    if schema.names != known.names:
        return "its columns stand in another order than the schema's"
    other = next((field for field in known if not schema.field(field.name).type.equals(field.type)), None)
    return f"its column '{other.name}' is {schema.field(other.name).type}, not {other.type}" if other else ""


def fault_in(table: pa.Table) -> str:
    """What no record may hold, of a table of the schema's types; nothing if all is well."""
    for name, info in Record.model_fields.items():
        column, kinds = table[name], _kinds(info.annotation)
        if column.null_count and NoneType not in kinds:
            return f"{column.null_count} records have no {name}"
        allowed = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
        strange = set(column.unique().drop_null().to_pylist()) - set(allowed) if allowed else set()
        if strange:
            return f"{name} is '{min(strange)}', not one of {', '.join(allowed)}"
        if pa.types.is_list(column.type) and any(chunk.flatten().null_count for chunk in column.chunks):
            return f"{name} has an empty place"
    return ""


def fault_of_values(table: pa.Table) -> str:
    """A number that no measure has; nothing if all is well. Of a table without a fault of :func:`fault_in`."""
    for name, (least, most) in RANGES.items():
        column = table[name].drop_null()
        ends = pc.min_max(column).as_py()
        strange = [] if not len(column) else [end for end in ends.values() if not least - NOISE <= end <= most + NOISE]
        if strange or (len(column) and pc.any(pc.is_nan(column)).as_py()):
            return f"{name} is {strange[0] if strange else 'no number'}, not between {least:g} and {most:g}"
    return ""


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The parts of a union; what is none is its own only part."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def to_table(records: list[Record]) -> pa.Table:
    return pa.Table.from_pylist([record.model_dump() for record in records], schema=arrow_schema())
