"""Files that are either whole or not there."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from upath.implementations.cloud import CloudPath

from kvbench.errors import KVBenchError, first_line
from kvbench.interrupts import INTERRUPTS
from kvbench.place import is_remote


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Has ``write`` fill a temporary file beside ``path``, flushes it to the disk and renames it; to a remote place the
    file is sent in one fsspec transaction.

    A kill at any moment leaves the old file or the new one. :class:`KVBenchError` when the disk will not take it.
    """
    try:
        with INTERRUPTS.held():
            if is_remote(path):
                _send(path, write)
            else:
                _write(path, write)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    except Exception as error:
        if not is_remote(path):
            raise
        raise _refused(path, f"{type(error).__name__}: {first_line(error)}") from error  # each service has its own


def check_writable(option: str, folder: Path) -> None:
    """:class:`KVBenchError` where the folder of an option takes no file, before hours are spent on what is to be kept
    there. A local folder is not made yet: what is asked for may be refused for another reason."""
    if not is_remote(folder):
        whole = folder.absolute()
        there = next(place for place in (whole, *whole.parents) if place.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            reason = "permission denied" if there.is_dir() else "it is no folder"
            raise KVBenchError(f"{option} {folder} cannot be written ({there}: {reason}): name another folder")
        return
    probe = folder / f".{uuid4().hex}"
    write_text_atomically(probe, "")
    with suppress(Exception):  # who may write may not always delete, and what is left is nothing
        probe.unlink()


def _refused(path: Path, reason: str) -> KVBenchError:
    return KVBenchError(
        f"cannot write {path}: {reason}. What was written before is kept; "
        "make room or permit writing there, then start the same command again"
    )


def _send(path: Any, write: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "file"
        write(whole)
        if not isinstance(path, CloudPath):  # there is no folder in a bucket, and a mistyped bucket would be made
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.fs.transaction, whole.open("rb") as source, path.fs.open(path.path, "wb") as target:
            shutil.copyfileobj(source, target)


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
