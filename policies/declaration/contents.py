"""Hashes the code of packages by its contents: two libraries of one version differ once one is
edited in place."""

import base64
import csv
import hashlib
import importlib.util
import io
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

SOURCE, COMPILED = ".py", (".so", ".pyd", ".dll", ".dylib")


@cache
def hash_contents(package: str) -> str:
    """Hashes the code of the package that is imported by this name, wherever it lies; an empty text
    where there is none. It reads 90 MB of torch and transformers in half a second, once for each
    process."""
    digest = hashlib.sha256()
    is_empty = True
    for place in list_places(package):
        recorded = _recorded_hashes(package, place)
        # Sorted, as ``os.walk`` lists files as the file system holds them, otherwise on each
        # machine.
        for name, file in sorted(_code_files(place)):
            digest.update(name.encode())
            digest.update(recorded.get(name) or _hash_file(file))
            is_empty = False
    return "" if is_empty else digest.hexdigest()[:16]


def list_places(package: str) -> list[Path]:
    """Returns the folders of a package, or the one file that a module is."""
    try:
        specification = importlib.util.find_spec(package)
    except (
        ImportError,
        ValueError,
        AttributeError,
    ):  # a module that was put into sys.modules by hand
        return _places_by_hand(package)
    if specification is None:
        return []
    if specification.submodule_search_locations:
        folders = [Path(folder) for folder in specification.submodule_search_locations]
        # Wheels keep the libraries that they bring, such as numpy's OpenBLAS, in a folder beside
        # the package.
        beside = [folder.with_name(f"{folder.name}.libs") for folder in folders]
        return [*folders, *(folder for folder in beside if folder.is_dir())]
    if specification.has_location and specification.origin:
        return [Path(specification.origin)]
    return []


def _places_by_hand(package: str) -> list[Path]:
    file = getattr(sys.modules.get(package), "__file__", None)
    if not file:
        return []
    path = Path(file)
    return [path.parent if path.name == "__init__.py" else path]


def _code_files(place: Path) -> Iterator[tuple[str, Path]]:
    """Yields source files and compiled libraries, each with its path from the folder around the
    package."""
    if place.is_file():
        yield place.name, place
    for folder, inner, files in os.walk(place):
        # In place, which is how ``os.walk`` is told where not to go.
        inner[:] = [name for name in inner if name != "__pycache__"]
        for name in files:
            # The version of a library may stand behind its ending, as in ``libcudnn.so.9``.
            if name.endswith((SOURCE, *COMPILED)) or ".so." in name:
                file = Path(folder, name)
                yield file.relative_to(place.parent).as_posix(), file


def _hash_file(file: Path) -> bytes:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").digest()


@cache
def _compiled_in(record: Path) -> Mapping[str, tuple[bytes, int]]:
    """Reads hash and size of the compiled libraries that the ``RECORD`` of an installed package
    lists."""
    compiled = {}
    rows = csv.reader(io.StringIO(record.read_text(encoding="utf-8")))
    for name, content, size in rows:
        is_compiled = name.endswith(COMPILED) or ".so." in name
        kind, _, value = content.partition("=")
        if kind == "sha256" and size and is_compiled:
            # ``RECORD`` leaves out the padding of base64, which Python's decoder wants.
            padding = "=" * (-len(value) % 4)
            compiled[name] = (base64.urlsafe_b64decode(value + padding), int(size))
    return compiled


def _recorded_hashes(package: str, place: Path) -> dict[str, bytes]:
    """Returns the hashes that were recorded when the package was installed there, of libraries that
    are as they were then by size and time: torch brings half a gigabyte on a CPU and several on a
    GPU, which takes seconds to read."""
    try:
        installed = distribution(package)
        name = f"{package}-{installed.version}.dist-info/RECORD"
        record = Path(str(installed.locate_file(name)))
        folder = record.parent.parent
        # A copy that stands earlier on the path, or an editable install, is not what was recorded.
        if not record.is_file() or folder.resolve() != place.parent.resolve():
            return {}
        installed_at, listed = record.stat().st_mtime, _compiled_in(record)
    except (PackageNotFoundError, OSError, ValueError):
        return {}
    hashes = {}
    for name, (content, size) in listed.items():
        file = folder / name
        if not file.is_file():
            continue
        now = file.stat()
        # pip writes ``RECORD`` after all other files: a younger library was put there later, and is
        # read.
        if now.st_size == size and now.st_mtime <= installed_at:
            hashes[name] = content
    return hashes
