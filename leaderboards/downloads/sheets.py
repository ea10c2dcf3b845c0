"""Tables as they are downloaded: what was computed, unrounded, as CSV."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.paired_difference import MeanDifference
from policies.declaration.levels import Level

# What makes a spreadsheet compute a cell instead of showing it (OWASP, CSV injection); their
# full-width forms too.
FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
FILE_FORBIDS = re.compile(r"[^A-Za-z0-9._+-]+")
LONGEST_NAME = 100
PLAIN = {str, int, bool, type(None)}


@dataclass(frozen=True)
class Sheet:
    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    # A value for each column: text, a number as it was computed, a truth value, None where there is
    # none, or a sequence of such.
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[str] = (),
        kinds: Mapping[str, type] = MappingProxyType({}),
    ) -> Self:
        """Makes a sheet of rows by column, with the columns of the first, or ``columns`` without
        rows. A level, a difference and an estimate have several, see :data:`SPREAD`; ``kinds``: of
        columns that may hold nothing but None."""
        by_column: dict[str, list[Any]] = {}
        for column in rows[0] if rows else columns:
            values = [row[column] for row in rows]
            spread = None
            # The type of any value tells it: others of the column may be None.
            for kind in {kinds.get(column), *map(type, values)}:
                spread = spread or SPREAD.get(kind)
            if spread is None:
                by_column[column] = values
                continue
            for part, attribute in spread(column).items():
                # None stays None in each of the columns.
                by_column[part] = [value and getattr(value, attribute) for value in values]
        plain = zip(*by_column.values(), strict=True)
        return cls(name, title, tuple(by_column), tuple(plain))

    def with_labels(self, labels: Mapping[str, Any]) -> "Sheet":
        """Returns the same with other columns before its own, which are the same in each row."""
        columns = (*labels, *self.columns)
        rows = tuple((*labels.values(), *row) for row in self.rows)
        return replace(self, columns=columns, rows=rows)

    def csv(self) -> str:
        """Writes the sheet as CSV (RFC 4180, UTF-8). Nothing is an empty cell, a truth value
        ``true`` or ``false``, a sequence JSON. Text that a spreadsheet would take for a formula has
        an apostrophe before it."""
        output = io.StringIO()
        writer = csv.writer(output, lineterminator="\r\n")
        writer.writerow(map(_escape_formula, self.columns))
        for row in self.rows:
            writer.writerow([_cell(_plain(value)) for value in row])
        return output.getvalue()


# By kind of value, the columns that it has in a download, and the attribute that each holds.
SPREAD: Mapping[type | None, Callable[[str], Mapping[str, str]]] = {
    Level: lambda name: {"level_kind": "kind", "level": "value"},
    MeanDifference: lambda name: {name: "mean", f"{name}_low": "low", f"{name}_high": "high"},
    Estimate: lambda name: {
        name: "mean",
        f"{name}_low": "low",
        f"{name}_high": "high",
        f"{name}_n": "n",
    },
}


def join_sheets(sheets: Iterable[Sheet]) -> list[Sheet]:
    """Joins the sheets of one name, their rows one after the other; a column that a sheet does not
    have is empty there."""
    groups: dict[str, list[Sheet]] = {}
    for sheet in sheets:
        groups.setdefault(sheet.name, []).append(sheet)
    return [_join(group) for group in groups.values()]


def _join(group: Sequence[Sheet]) -> Sheet:
    if len(group) == 1:
        return group[0]
    columns: dict[str, None] = {}
    for sheet in group:
        columns |= dict.fromkeys(sheet.columns)
    rows = []
    for sheet in group:
        for row in sheet.rows:
            by_column = dict(zip(sheet.columns, row, strict=True))
            rows.append(tuple(map(by_column.get, columns)))
    return replace(group[0], columns=tuple(columns), rows=tuple(rows))


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's; what is not finite is no number."""
    if type(value) in PLAIN:
        return value
    if type(value) is float:
        # JSON has no NaN, and a spreadsheet would take it for a text.
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | np.ndarray):
        return [_plain(item) for item in value]
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and not math.isfinite(number):
        return None
    return number


def _cell(plain: Any) -> str | int | float | None:
    """Writes a value; csv itself writes numbers in full, and nothing for None."""
    # First, since a truth value is an integer in Python too.
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if plain is None or isinstance(plain, float | int):
        return plain
    if not isinstance(plain, str):
        plain = json.dumps(plain)
    return _escape_formula(plain)


def _escape_formula(text: str) -> str:
    return f"'{text}" if FORMULA.match(text) else text


def file_name(name: str) -> str:
    """Returns a name, whatever it holds, as a part of the name of a file on any system; other names
    have other files.

    >>> file_name("base"), file_name("../x")
    ('base', 'x-d6b96a97')
    """
    kept = FILE_FORBIDS.sub("-", name).strip("-.")[:LONGEST_NAME]
    if kept and kept == name:
        return kept
    return f"{kept}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}".lstrip("-")
