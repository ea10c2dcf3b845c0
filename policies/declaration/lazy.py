"""The one way here to import a module later than at the top of a file, and what a registry holds
later than the registry.

docs/architecture.md says when. ``kvpress``, ``np`` and ``torch`` stand for the modules that many
files take late."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["LazyMapping", "LazyModule", "kvpress", "np", "torch"]

Entry = TypeVar("Entry")


class LazyModule(ModuleType):
    """Stands for a module that is imported when something of it is first used.

    kvpress, and torch below it, take ten seconds to import: what only names policies or prints a
    table does without. What is assigned to an attribute stays here, and does not reach the
    module."""

    # Python asks this only for what the object itself lacks: ``__name__`` it has, and is what to
    # import.
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


class LazyMapping(Mapping[str, Entry]):
    """Maps names, which are there at once, to entries that are loaded when they are first asked
    for: whoever names one imports no other."""

    def __init__(self, names: Iterable[str], load: Callable[[str], Entry]) -> None:
        self._names = dict.fromkeys(names)
        self._load = load
        self._loaded: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    # The one of Mapping would load the entry to learn whether there is one.
    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


kvpress = LazyModule("kvpress")
# kvpress has no types, so there is nothing for a checker to see in it.
if TYPE_CHECKING:
    import numpy as np
    import torch
else:
    np, torch = LazyModule("numpy"), LazyModule("torch")
