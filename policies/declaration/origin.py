"""Hashes what a plug-in rests on: its own code, the code that it imports, and the files that it
names or reads."""

import ast
import builtins
import hashlib
import importlib.util
import io
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from policies.declaration.contents import COMPILED, SOURCE, hash_contents
from policies.declaration.foreign_code import INSTALLED, OURS, is_library_file

# Packages whose code the identity of every run sees.
EVERYWHERE = (
    *OURS,
    "kvpress",
    "torch",
    "transformers",
    "numpy",
    "tokenizers",
    "safetensors",
    "jinja2",
)
LONGEST_PATH = 255
OF_FILES = "kvbench_plug_in_"  # begins the names of modules that were loaded from a file
# By plug-in: a module that was imported before reads nothing again.
_read_by: dict[str, set[Path]] = {}


@dataclass(frozen=True)
class Sources:
    """Holds what a plug-in rests on: files of the user, and the installed packages that it
    imports."""

    # By the path from one folder in which they can be imported, and find each other, as they do
    # where they lie; the file of the plug-in is the first.
    files: Mapping[str, Path] = field(default_factory=dict)
    packages: frozenset[str] = frozenset()

    @cached_property
    def origin(self) -> str:
        """Hashes the files and the packages, each package whole. It does not depend on where the
        files lie."""
        digest = hashlib.sha256()
        for name in sorted(self.files):
            digest.update(f"{name}\n".encode())
            digest.update(hashlib.sha256(self.files[name].read_bytes()).digest())
        for package in sorted(self.packages):
            digest.update(f"{package} {hash_contents(package)}".encode())
        return digest.hexdigest()[:16]


def find_sources(
    module: ModuleType, arguments: Iterable[Any] = (), read: Iterable[Path] = ()
) -> Sources:
    """Finds the file that a plug-in stands in, all that this imports, and the data files that their
    texts or the arguments name, or that were ``read`` while it was loaded."""
    code, packages = _find_code(module)
    data = {file for file in read if file.is_file()}
    # What its texts name too: a press may read a file only when it runs.
    for file in code.values():
        if file.suffix == SOURCE:
            data.update(_named_files(file))
    for argument in arguments:
        if isinstance(argument, str) and _is_file(Path(argument)):
            data.add(Path(argument))
    data = {file for file in data if not _is_of_system(file)}
    name, place = next(iter(code.items()))
    # The folder in which it is imported: ``package/inner/press.py`` lies two folders below.
    root = place.resolve().parents[name.count("/")]
    files = dict(code)
    code_files = {file.resolve() for file in code.values()}
    data_files = {file.resolve() for file in data}
    for file in sorted(data_files - code_files):
        files[_path_from(root, file, files)] = file
    return Sources(files, frozenset(packages))


def _path_from(root: Path, file: Path, others: Collection[str]) -> str:
    """Names a data file from the folder of the plug-in, or from where the command was started: in a
    copy of that folder it is then found beside the plug-in. One that lies elsewhere has its own
    name, unlike all others."""
    for folder in (root, Path().resolve()):
        if file.is_relative_to(folder):
            name = file.relative_to(folder).as_posix()
            if name not in others:
                return name
    for number in count():
        name = f"elsewhere/{number}/{file.name}"
        if name not in others:
            break
    return name


@contextmanager
def files_read(plug_in: str, package: str = "") -> Iterator[set[Path]]:
    """Collects the files that the code of a plug-in opens in the body, itself or by what it calls,
    but for those of installed packages and of Python. ``package``: that the plug-in stands in,
    which may itself be installed."""
    read = _read_by.setdefault(plug_in, set())
    opened = builtins.open

    def noting(file: Any, *arguments: Any, **options: Any) -> Any:
        # Opened first: a file that is not there is no source.
        handle = opened(file, *arguments, **options)
        if isinstance(file, str | Path) and handle.readable():
            path = Path(file).absolute()
            if _is_of_user(path) and _is_asked_for(sys._getframe(1), package):
                read.add(path)
        return handle

    # Both, as pathlib calls ``io.open``, which is the same function under its other name.
    before = builtins.open, io.open
    builtins.open = io.open = noting
    try:
        yield read
    finally:
        builtins.open, io.open = before


def _is_asked_for(frame: FrameType | None, package: str) -> bool:
    """Tells whether the code of a plug-in asked for what a frame does. What an installed package
    opens while it is imported, it opens for itself: torch reads ``/proc/self/maps`` then, pandas a
    time zone, and only in a process that has not imported them yet."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        # A function that dataclasses wrote stands in no file, nor does a frozen one: their modules do.
        file = Path(frame.f_globals.get("__file__") or frame.f_code.co_filename)
        if module.partition(".")[0] == package or not is_library_file(file):
            return True
        if frame.f_code.co_name == "<module>":
            return False
        frame = frame.f_back
    return True


def _is_of_system(file: Path) -> bool:
    """Tells whether a system makes up what a file says when it is read: it is another text each
    time, as of ``/proc/stat``."""
    return file.resolve().parts[1:2] in (("proc",), ("sys",), ("dev",))


def _is_of_user(file: Path) -> bool:
    is_code = file.suffix in (SOURCE, ".pyc", *COMPILED)
    return not (is_code or INSTALLED & set(file.parts) or file.is_relative_to(sys.base_prefix))


def _find_code(module: ModuleType) -> tuple[dict[str, Path], set[str]]:
    """Finds the files of the user that a module consists of and imports, the module's own first,
    each with its path from a folder in which it can be imported; and the installed packages among
    what is imported."""
    package = module.__name__.partition(".")[0]
    names = dict[Path, str]()
    packages = set[str]()
    pending = [(Path(str(module.__file__)), module.__name__)]
    while pending:
        file, name = pending.pop()
        # Modules may import one another in a circle.
        if file in names:
            continue
        # A module that was loaded from a file has a made-up name, which holds a hash of the file's
        # path: that would make another plug-in of a copy.
        names[file] = file.name if name.startswith(OF_FILES) else _import_path(name, file)
        if file.suffix != SOURCE:  # a compiled module, which is hashed and cannot be searched
            continue
        for imported in _imported_modules(file, name):
            place = _find_file(imported)
            if place is None:
                continue
            top = imported.partition(".")[0]
            # A plug-in that is itself installed is hashed file by file, and what it imports as
            # whole packages.
            if top != package and INSTALLED & set(place.parts):
                packages.add(top)
            else:
                pending.append((place, imported))
    return {name: file for file, name in names.items()}, packages


def _import_path(module: str, file: Path) -> str:
    """Returns the path at which a module of this name is looked for, such as
    ``package/inner/__init__.py``."""
    folders = module.split(".")
    if file.stem != "__init__":
        folders.pop()
    return "/".join([*folders, file.name])


def _imported_modules(file: Path, name: str) -> Iterator[str]:
    """Yields the names of the modules that a file imports anywhere, of the packages around these,
    and of what may be modules, as what is given to ``importlib`` stands in a text."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        for module in _modules_named_by(node, package):
            parts = module.split(".")
            # To import ``a.b.c`` also runs ``a/__init__.py`` and ``a/b/__init__.py``.
            for end in range(1, len(parts) + 1):
                yield ".".join(parts[:end])


def _modules_named_by(node: ast.AST, package: str) -> list[str]:
    """Lists the modules that an import, or a text that a call begins with, names in a file of a
    package."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        # What is imported from a module may be a module of its own, or a name in it: both are
        # tried.
        return [base, *(f"{base}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        text = node.args[0].value
        if isinstance(text, str) and text.replace(".", "").isidentifier():
            return [text]
    return []


def _find_file(name: str) -> Path | None:
    """Returns the file of a module whose code no identity sees otherwise."""
    top = name.partition(".")[0]
    if not top or top in EVERYWHERE or top in sys.stdlib_module_names:
        return None
    try:
        specification = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        file = getattr(sys.modules.get(name), "__file__", None)  # it was put there by hand
        return Path(file) if file else None
    if specification is None or not specification.has_location or specification.origin is None:
        return None
    return Path(specification.origin)


def _named_files(file: Path) -> Iterator[Path]:
    """Yields the files that the texts of a source file name: beside it, in a folder beside it that
    another text names, or from where the command was started."""
    texts = sorted(_path_like_texts(file))
    folders = [file.parent, Path()]
    for text in texts:
        folder = file.parent / text
        if text.strip("./") and folder.is_dir():
            folders.append(folder)
    for text in texts:
        for folder in folders:
            if _is_file(folder / text):
                yield folder / text


def _path_like_texts(file: Path) -> set[str]:
    """Finds the texts of a source file that can be a path: of one line, and not too long."""
    texts = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = node.value
        if 0 < len(text) <= LONGEST_PATH and "\n" not in text and "\0" not in text:
            texts.add(text)
    return texts


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no text of a path
        return False
