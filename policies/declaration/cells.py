"""Finds the source of what a user defined in the cells of a notebook, or at a prompt.

It stands in no file. Python keeps the lines of a cell in ``linecache``, under a name that the code
of its functions has. What the functions of a cell call of other cells belongs to it."""

import hashlib
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from policies.declaration.foreign_code import INSTALLED, is_library_file
from policies.declaration.origin import EVERYWHERE, find_sources
from policies.declaration.policy import PlugInCode

PLAIN = (bool, int, float, str, bytes, type(None))
MOST_DEEP = 4  # lists in lists of a value that a function reads


@dataclass
class _Definitions:
    """Collects what something that a user defined consists of."""

    cells: dict[str, str] = field(default_factory=dict)  # by the name of a cell, its text
    modules: dict[str, ModuleType] = field(default_factory=dict)  # of the user, which have files
    values: dict[str, str] = field(default_factory=dict)  # plain values that its code reads
    seen: set[int] = field(default_factory=set)

    def add(self, value: Any, name: str = "", depth: int = 0) -> None:
        """Adds a function, a class or an object with all that its code refers to by name."""
        if id(value) in self.seen or depth > 20:
            return
        self.seen.add(id(value))
        if isinstance(value, partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self.add(part, name, depth + 1)
        elif isinstance(value, FunctionType):
            self._add_function(value, depth)
        elif isinstance(value, type):
            self._add_class(value, depth)
        elif isinstance(value, PLAIN):
            if name:
                self.values[name] = repr(value)
        elif isinstance(value, list | tuple | set | dict):
            entries = value.values() if isinstance(value, dict) else value
            for number, entry in enumerate(entries):
                self.add(entry, f"{name}.{number}" if name else "", depth + MOST_DEEP)
        elif not isinstance(value, ModuleType):
            self.add(type(value), name, depth + 1)

    def _add_class(self, kind: type, depth: int) -> None:
        for owner in kind.__mro__:
            if _is_of_library(owner.__module__):
                continue
            for function in _functions_of_class(owner):
                self.add(function, "", depth + 1)

    def _add_function(self, function: FunctionType, depth: int) -> None:
        if _is_of_library(str(function.__module__)):
            return
        file = function.__code__.co_filename
        module = sys.modules.get(str(function.__module__))
        if Path(file).is_file():
            # Python's own functions may bear the name of the user's module, as the text of a
            # dataclass does.
            has_file = module is not None and getattr(module, "__file__", None)
            if module is not None and has_file and not is_library_file(Path(file)):
                self.modules[module.__name__] = module
            return
        lines = linecache.getlines(file)
        if lines:
            self.cells[file] = "".join(lines)
        else:  # typed where nothing keeps it, as in a text that is executed
            place = f"{function.__qualname__}, whose source is not kept"
            self.values[place] = _hash_code(function.__code__)
        inner = [cell.cell_contents for cell in function.__closure__ or ()]
        for value in (*inner, *(function.__defaults__ or ())):
            self.add(value, f"in {function.__qualname__}", depth + 1)
        for name in _names_in(function.__code__):
            if name in function.__globals__:
                self.add(function.__globals__[name], name, depth + 1)


def find_code(value: Any, name: str) -> PlugInCode:
    """Returns the code of something that is in memory: the files of its modules and the text of its
    cells. ``name``: of what is defined, by which its text is kept."""
    definitions = _Definitions()
    definitions.add(value)
    digest = hashlib.sha256()
    files: dict[str, Path] = {}
    for module in definitions.modules.values():
        sources = find_sources(module)
        digest.update(sources.origin.encode())
        files.update(sources.files)
    for text in sorted(definitions.cells.values()):
        digest.update(text.encode())
    for place, plain in sorted(definitions.values.items()):
        digest.update(f"{place} {plain}".encode())
    texts: dict[str, str] = {}
    if definitions.cells:
        # What a cell calls was met after it, and has to be defined before it.
        in_order = list(dict.fromkeys(reversed(definitions.cells.values())))
        texts[f"{name}.py"] = "\n\n".join(text.rstrip() + "\n" for text in in_order)
    if not (files or texts or definitions.values):
        return PlugInCode()  # of a library, whose code the identity of every run has
    return PlugInCode(digest.hexdigest()[:16], files, texts)


def _is_of_library(module: str) -> bool:
    """Tells whether the code of a module is seen by the identity of every run, or is Python's."""
    package = module.partition(".")[0]
    if package == "__main__":  # where a notebook defines, whatever started it
        return False
    if package in EVERYWHERE:
        return True
    if package in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(package), "__file__", None)
    return bool(file) and bool(INSTALLED & set(Path(str(file)).parts))


def _functions_of_class(kind: type) -> Iterator[Any]:
    for value in vars(kind).values():
        if isinstance(value, property):
            yield from filter(None, (value.fget, value.fset))
        elif isinstance(value, staticmethod | classmethod):
            yield value.__func__
        elif isinstance(value, FunctionType):
            yield value


def _names_in(code: CodeType) -> Iterator[str]:
    """Yields the names that code reads, also in the functions that stand in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _hash_code(code: CodeType) -> str:
    digest = hashlib.sha256(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            digest.update(_hash_code(constant).encode())
        elif not isinstance(constant, frozenset):  # whose order differs from process to process
            digest.update(repr(constant).encode())
    digest.update(repr(list(_names_in(code))).encode())
    return digest.hexdigest()
