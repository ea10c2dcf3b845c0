"""Reads rows from a file of JSON lines, and the fields of a row; every fault names the file and the
line."""

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

from datasets_gen.examples.errors import DatasetError

QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
LIST = re.compile(rf"\[\s*{QUOTED}(?:[\s,]+{QUOTED})*\s*\]", re.DOTALL)  # numpy writes no commas
HALF = re.compile(r"\\u[dD][89a-fA-F]")  # how JSON writes half of a character


def read_entries(path: Path, kind: str, option: str = "data=") -> list[tuple[str, object]]:
    """Returns the entries of a file, each with its place; raises :class:`DatasetError` for the
    first line that is no JSON. ``kind`` names the rows that the file should have, ``option`` what
    stands before the file."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows begin a file with a mark
    except OSError as error:
        raise DatasetError(
            f"{option}{path} cannot be read ({error.strerror}): give a JSONL file of {kind} rows"
        ) from error
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{option}{path} is no text in UTF-8: give a JSONL file of {kind} rows"
        ) from error
    # Not splitlines: a string of JSON may hold other line separators as they are.
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            lines.append((f"{path}, line {number}", line))
    return [(where, _parse(line, where)) for where, line in lines]


def _parse(line: str, where: str) -> object:
    try:
        entry: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            said = f"{error.msg} at column {error.colno}"
        else:
            said = str(error)
        raise DatasetError(f"{where}: no JSON ({said}): each line is one row") from error
    # Python reads half a character without complaint, and fails where it is written.
    if HALF.search(line):
        try:
            json.dumps(entry, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DatasetError(
                f"{where}: it holds half a character (\\ud800 to \\udfff come in twos)"
            ) from error
    return entry


def read_mapping(entry: object, where: str) -> Mapping[str, object]:
    """Returns a row as a mapping of its fields. Raises :class:`DatasetError` for a row that is
    none."""
    if not isinstance(entry, Mapping):
        raise DatasetError(f"{where}: the row is no JSON object")
    return entry


def read_field(entry: Mapping[str, object], name: str, where: str) -> object:
    """Returns a field of a row. Raises :class:`DatasetError` where it is missing."""
    if entry.get(name) is None:
        raise DatasetError(f"{where}: '{name}' is missing")
    return entry[name]


def read_text(entry: Mapping[str, object], name: str, where: str) -> str:
    """Returns a field that holds text. Raises :class:`DatasetError` where it is missing, empty, or
    no text."""
    value = read_field(entry, name, where)
    if not isinstance(value, str) or not value.strip():
        raise DatasetError(f"{where}: '{name}' is no text, or an empty one")
    return value


def golds_in(text: str) -> list[str]:
    """Returns the gold answers in a cell: a text, or a list as Python or numpy write it.

    >>> golds_in("['Ada' 'Ada Lovelace']")
    ['Ada', 'Ada Lovelace']
    """
    if LIST.fullmatch(text.strip()):
        # Each text by itself: of a list without commas Python would join the texts.
        return [str(ast.literal_eval(quoted)) for quoted in re.findall(QUOTED, text, re.DOTALL)]
    return [text] if text.strip() not in ("", "[]") else []
