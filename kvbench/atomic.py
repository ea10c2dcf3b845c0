"""Files that are either whole or not there."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kvbench.errors import KVBenchError
from kvbench.interrupts import INTERRUPTS


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Has ``write`` fill a temporary file beside ``path``, flushes it to the disk and renames it.

    A kill at any moment leaves the old file or the new one. :class:`KVBenchError` when the disk will not take it.
    """
    try:
        with INTERRUPTS.held():
            _write(path, write)
    except OSError as error:
        raise KVBenchError(
            f"cannot write {path}: {error.strerror or error}. What was written before is kept; "
            "make room or permit writing there, then start the same command again"
        ) from error


def _write(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(descriptor)
    partial = Path(name)
    try:
        write(partial)
        with partial.open("rb") as handle:
            os.fsync(handle.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def make_folder(option: str, folder: Path) -> None:
    """The folder that an option names; :class:`KVBenchError` if it is none and cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KVBenchError(
            f"{option} {folder} cannot be written ({error.strerror or error}): name another folder"
        ) from error
