"""Writes files that are either whole or not there, and lets one process at a time work in a folder."""

import fcntl
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.places import is_remote
from kvbench.system.process import interrupts_held, is_running
from policies.declaration.lazy import LazyModule

cloud = LazyModule("upath.implementations.cloud")

PARTIAL = re.compile(r"\..+\.\w+-(\d+)\.partial")  # the name of a file that a process is writing


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets ``write`` fill a temporary file beside ``path``, flushes it to the disk and renames it. A remote place gets
    the file in one fsspec transaction.

    A kill at any moment leaves the old file or the new one. A disk that refuses the file raises :class:`KVBenchError`.
    """
    try:
        with interrupts_held():
            if is_remote(path):
                _send(path, write)
            else:
                _write(path, write)
    except OSError as error:
        raise _write_error(path, error.strerror or str(error)) from error
    except Exception as error:
        if not is_remote(path):
            raise
        reason = f"{type(error).__name__}: {first_line(error)}"  # each service raises its own
        raise _write_error(path, reason) from error


def check_writable(option: str, folder: Path) -> None:
    """Raises :class:`KVBenchError` if the folder of an option takes no files, before hours of work are lost. It makes
    no local folder yet, because the command may still be refused for another reason."""
    if not is_remote(folder):
        whole = folder.absolute()
        existing = next(place for place in (whole, *whole.parents) if place.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            reason = "permission denied" if existing.is_dir() else "it is no folder"
            raise KVBenchError(f"{option} {folder} cannot be written ({existing}: {reason}): name another folder")
        return
    probe = folder / f".{uuid4().hex}"
    write_text_atomically(probe, "")
    with suppress(Exception):  # not everybody who may write may delete, and the file left behind is empty
        probe.unlink()


def _write_error(path: Path, reason: str) -> KVBenchError:
    return KVBenchError(
        f"cannot write {path}: {reason}. Files written before are kept; "
        "make room or permit writing there, then start the same command again"
    )


def _send(path: Any, write: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "file"
        write(whole)
        if not isinstance(path, cloud.CloudPath):  # there is no folder in a bucket, and a mistyped bucket would be made
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.fs.transaction, whole.open("rb") as source, path.fs.open(path.path, "wb") as target:
            shutil.copyfileobj(source, target)


def _write(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = f"-{os.getpid()}.partial"
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix)
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


def remove_partial(folder: Path) -> None:
    """Removes what a kill left half written in a local folder, but no file that a process of this machine may still
    be writing. It is called once, before anything is written there."""
    for partial in () if is_remote(folder) else folder.rglob(".*.partial"):
        name = PARTIAL.fullmatch(partial.name)
        if name and not is_running(int(name[1])):
            partial.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def make_folder(option: str, folder: Path) -> None:
    """Makes the folder of an option, and removes what a kill left half written there; raises :class:`KVBenchError` if
    that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial(folder)
    except OSError as error:
        raise KVBenchError(
            f"{option} {folder} cannot be written ({error.strerror or error}): name another folder"
        ) from error


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Holds a lock beside a local folder, which the system lets go when this process ends, however it does. Raises
    :class:`KVBenchError` that names the process which holds it. A place at a URL has none."""
    if is_remote(folder):
        yield
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read(300) or "another process"
            raise KVBenchError(
                f"{owner} is at work in {folder}: wait for its end, or end it, then start again; or choose another name"
            ) from error
        file.truncate(0)
        print(f"process {os.getpid()} on {platform.node()}", end="", file=file, flush=True)
        yield
