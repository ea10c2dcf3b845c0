"""Registries: what is declared, by its name."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


def split_outside_brackets(text: str) -> list[str]:
    """Splits a list at its commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


class Named(Protocol):
    @property
    def name(self) -> str: ...


Declared = TypeVar("Declared", bound=Named)


def by_name(kind: str, declared: Iterable[Declared], error: type[Exception]) -> dict[str, Declared]:
    """Returns what is declared by its name; a name taken twice raises ``error``."""
    named: dict[str, Declared] = {}
    for one in declared:
        if one.name in named:
            raise error(f"two {kind} are named '{one.name}': give one of them another name")
        named[one.name] = one
    return named
