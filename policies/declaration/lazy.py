"""The one way here to import a module later than at the top of a file."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["LazyModule", "kvpress", "np", "torch"]


class LazyModule(ModuleType):
    """Stands for a module that is imported when something of it is first used.

    kvpress, and torch below it, take ten seconds to import: what only names policies or prints a
    table does without."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


kvpress = LazyModule("kvpress")
if TYPE_CHECKING:
    import numpy as np
    import torch
else:
    np, torch = LazyModule("numpy"), LazyModule("torch")
