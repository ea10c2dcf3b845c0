"""Rows of IFEval, read from a file or as its data set on the hub has them, and checked one by one."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets_gen.examples.directives import Directive
from datasets_gen.examples.errors import DatasetError, unknown_name
from datasets_gen.examples.ifeval_kinds import ARGUMENTS

ROLES = ["system", "user"]


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt of IFEval."""

    user: str  # the request; in a plain row it carries the directives too
    system: str  # the message that carries the directives; empty in a plain row
    directives: tuple[Directive, ...]


def read_rows(path: Path) -> tuple[Row, ...]:
    """Reads the rows of a JSONL file; raises :class:`DatasetError` that names the first line that is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DatasetError(
            f"--data {path} cannot be read ({error.strerror}): give a JSONL file of IFEval rows"
        ) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"--data {path} is no text in UTF-8: give a JSONL file of IFEval rows") from error
    # Not splitlines: a string of JSON may hold other line separators as they are.
    lines = [(f"{path}, line {number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return rows_of(((where, _parsed(line, where)) for where, line in lines), str(path))


def rows_of(entries: Iterable[tuple[str, object]], source: str) -> tuple[Row, ...]:
    """Makes rows of entries, each of which comes with its place in the source. All are of one kind."""
    rows: list[Row] = []
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


def _parsed(line: str, where: str) -> object:
    try:
        entry: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        said = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DatasetError(f"{where}: no JSON ({said}): each line is one row") from error
    return entry


def _row(entry: object, where: str) -> Row:
    if not isinstance(entry, Mapping):
        raise DatasetError(f"{where}: the row is no JSON object")
    directives = _directives(entry, where)
    if entry.get("messages") is None:
        return Row(_text(entry, "prompt", where), "", directives)
    messages = [message for message in _list(entry, "messages", where) if isinstance(message, Mapping)]
    if [message.get("role") for message in messages] != ROLES:
        raise DatasetError(f"{where}: 'messages' are one of the role system and then one of the role user")
    system, user = (_text(message, "content", where) for message in messages)
    return Row(user, system, directives)


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
    value = _field(entry, name, where)
    if not isinstance(value, list):
        raise DatasetError(f"{where}: '{name}' is no list")
    return value


def _text(entry: Mapping[str, object], name: str, where: str) -> str:
    value = _field(entry, name, where)
    if not isinstance(value, str) or not value.strip():
        raise DatasetError(f"{where}: '{name}' is no text, or an empty one")
    return value


def _field(entry: Mapping[str, object], name: str, where: str) -> object:
    if entry.get(name) is None:
        raise DatasetError(f"{where}: '{name}' is missing")
    return entry[name]
