"""What a definition is."""

import re
from dataclasses import dataclass

COLUMN = re.compile("[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Definition:
    """``formula`` in plain text, where one says it more exactly; ``source`` names the paper, if a paper's. ``names``:
    headings of tables and columns of downloads and records that it explains."""

    name: str
    text: str
    formula: str = ""
    source: str = ""
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of the names that are columns of downloads or records."""
        return tuple(dict.fromkeys(name for name in self.names if COLUMN.fullmatch(name)))


@dataclass(frozen=True)
class Chapter:
    identifier: str
    title: str
    definitions: tuple[Definition, ...]


def with_interval(*names: str) -> tuple[str, ...]:
    """A column, and those of its interval."""
    return tuple(f"{name}{end}" for name in names for end in ("", "_low", "_high"))


def estimates(*names: str) -> tuple[str, ...]:
    """The same with how many values it is of."""
    return (*with_interval(*names), *(f"{name}_n" for name in names))
