"""Declares definitions, which stand on the page of method."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

COLUMN = re.compile("[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Definition:
    """A paragraph that says what one number, or a few that belong together, mean."""

    name: str
    text: str
    formula: str = ""  # plain text, where it says more exactly what is computed
    source: str = ""  # the paper or standard that the number comes from
    names: tuple[str, ...] = ()  # the headings of tables and the columns of downloads and records that it explains
    chapter: str = ""  # the identifier of the chapter in which a metric's definition stands

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the names that are columns of downloads or records."""
        return tuple(dict.fromkeys(name for name in self.names if COLUMN.fullmatch(name)))


@dataclass(frozen=True)
class Chapter:
    """Definitions that belong together."""

    identifier: str
    title: str
    definitions: tuple[Definition, ...]


def definitions_in(chapter: str, declared: Iterable[tuple[Definition, tuple[str, ...]]]) -> tuple[Definition, ...]:
    """Returns the definitions that stand in a chapter, each once. ``declared``: definitions with names of what they are
    declared for, which they explain beside their own."""
    names: dict[Definition, dict[str, None]] = {}
    for definition, explained in declared:
        if definition.chapter == chapter:
            names.setdefault(definition, {}).update(dict.fromkeys(explained))
    return tuple(
        replace(definition, names=tuple(dict.fromkeys((*explained, *definition.names))))
        for definition, explained in names.items()
    )


def with_interval(*names: str) -> tuple[str, ...]:
    """Returns each column with the two columns of its interval."""
    return tuple(f"{name}{end}" for name in names for end in ("", "_low", "_high"))


def estimates(*names: str) -> tuple[str, ...]:
    """Returns each column with its interval and with how many values it is the mean of."""
    return (*with_interval(*names), *(f"{name}_n" for name in names))
