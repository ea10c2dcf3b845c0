"""Rows of IFEval, read from a file or as its data set on the hub has them, and checked one by one."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets_gen.examples.directives import ARGUMENTS, Directive
from datasets_gen.examples.errors import DatasetError, unknown_name
from datasets_gen.examples.jsonl import field_of, mapping_of, read_entries, text_of

ROLES = ["system", "user"]


@dataclass(frozen=True, slots=True)
class IfevalPrompt:
    """A prompt of IFEval."""

    user: str  # the request; in a plain row it carries the directives too
    system: str  # the message that carries the directives; empty in a plain row
    directives: tuple[Directive, ...]


def read_rows(path: Path) -> tuple[IfevalPrompt, ...]:
    """Reads the rows of a JSONL file; raises :class:`DatasetError` that names the first line that is none."""
    return rows_of(read_entries(path, "IFEval"), str(path))


def rows_of(entries: Iterable[tuple[str, object]], source: str) -> tuple[IfevalPrompt, ...]:
    """Makes rows of entries, each of which comes with its place in the source. All are of one kind."""
    rows: list[IfevalPrompt] = []
    for where, entry in entries:
        row = _row(entry, where)
        if rows and bool(row.system) != bool(rows[0].system):
            kinds = ("split into messages", "plain")
            kind, first = kinds if row.system else kinds[::-1]
            raise DatasetError(f"{where}: the row is {kind} and the rows before it are {first}: keep them in two files")
        rows.append(row)
    if not rows:
        raise DatasetError(f"{source} has no rows: give a JSONL file of IFEval rows")
    return tuple(rows)


def _row(row: object, where: str) -> IfevalPrompt:
    entry = mapping_of(row, where)
    directives = _directives(entry, where)
    if entry.get("messages") is None:
        return IfevalPrompt(text_of(entry, "prompt", where), "", directives)
    messages = [message for message in _list(entry, "messages", where) if isinstance(message, Mapping)]
    if [message.get("role") for message in messages] != ROLES:
        raise DatasetError(f"{where}: 'messages' are one of the role system and then one of the role user")
    system, user = (text_of(message, "content", where) for message in messages)
    return IfevalPrompt(user, system, directives)


def _directives(entry: Mapping[str, object], where: str) -> tuple[Directive, ...]:
    kinds, arguments = (_list(entry, name, where) for name in ("instruction_id_list", "kwargs"))
    if not kinds:
        raise DatasetError(f"{where}: 'instruction_id_list' is empty: there is nothing to be obeyed")
    if len(kinds) != len(arguments):
        raise DatasetError(f"{where}: {len(kinds)} instructions have {len(arguments)} kwargs: give each its own")
    return tuple(_directive(kind, given, where) for kind, given in zip(kinds, arguments, strict=True))


def _directive(kind: object, given: object, where: str) -> Directive:
    """Returns the arguments as JSON in one form. The data set on the hub has every argument in every row, most of them
    null."""
    if not isinstance(kind, str) or kind not in ARGUMENTS:
        raise DatasetError(f"{where}: {unknown_name('instruction', str(kind), ARGUMENTS)}")
    if not isinstance(given, Mapping):
        raise DatasetError(f"{where}: the kwargs of {kind} are no JSON object")
    arguments = {name: value for name, value in given.items() if value is not None}
    if sorted(arguments) != sorted(ARGUMENTS[kind]):
        accepted, given_names = (", ".join(sorted(names)) or "nothing" for names in (ARGUMENTS[kind], arguments))
        raise DatasetError(f"{where}: {kind} takes {accepted}, and is given {given_names}")
    for name, value in arguments.items():
        if not isinstance(value, ARGUMENTS[kind][name]):
            raise DatasetError(f"{where}: the {name} of {kind} is no {ARGUMENTS[kind][name].__name__}")
        if not value:
            raise DatasetError(f"{where}: the {name} of {kind} is empty, and its checker would draw one at random")
    return Directive(kind, json.dumps(arguments, ensure_ascii=False, sort_keys=True) if arguments else "")


def _list(entry: Mapping[str, object], name: str, where: str) -> list[object]:
    value = field_of(entry, name, where)
    if not isinstance(value, list):
        raise DatasetError(f"{where}: '{name}' is no list")
    return value
