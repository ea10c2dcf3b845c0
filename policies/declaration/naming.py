"""Registries: what is declared, by its name."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


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
