"""Writes files that are either whole or not there, and lets one process at a time work in a
folder."""

import fcntl
import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from kvbench.system.errors import KVBenchError
from kvbench.system.process import interrupts_held, is_running

# The first part of s3://bucket/x, of which Path makes s3:/bucket/x.
ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:")
PARTIAL = re.compile(r"\..+\.\w+-(\d+)\.partial")  # the name of a file that a process is writing

SAFE = " ()[]=+,"  # in the name of a file, besides letters, digits and _.-~
LONGEST_NAME = 150


def file_name(policy: str) -> str:
    """Returns the name of a policy as a file or folder may have it."""
    name = quote(policy, safe=SAFE)
    if len(name) > LONGEST_NAME:
        return f"{name[:LONGEST_NAME]}-{hashlib.sha256(policy.encode()).hexdigest()[:8]}"
    return name


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets ``write`` fill a file beside ``path``, which replaces it: a kill leaves the old file or
    the new one. Raises :class:`KVBenchError` where it cannot be written."""
    try:
        with interrupts_held():
            _write(path, write)
    except OSError as error:
        advice = "make room or permit writing there, then start the same run again"
        reason = f"{error.strerror or error}. Files written before are kept"
        raise KVBenchError(f"cannot write {path}: {reason}; {advice}") from error


def check_writable(option: str, folder: Path) -> None:
    """Raises :class:`KVBenchError` if a folder takes no files, before hours of work are lost; makes
    none yet."""
    _check_is_local(option, folder)
    whole = folder.absolute()
    existing = next(place for place in (whole, *whole.parents) if place.exists())
    if not existing.is_dir():
        reason = "it is no folder"
    elif not os.access(existing, os.W_OK | os.X_OK):
        reason = "permission denied"
    else:
        return
    place = f"{option} {folder} cannot be written ({existing}: {reason})"
    raise KVBenchError(f"{place}: name another folder")


def _check_is_local(option: str, folder: Path) -> None:
    if folder.parts and ADDRESS.fullmatch(folder.parts[0]):
        where = "kvbench writes to the file system of this machine alone"
        raise KVBenchError(
            f"{option} {folder} is an address: {where}; give a path, and copy the files from there"
        )


def _write(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = f"-{os.getpid()}.partial"
    # Beside the file that it replaces: a rename is one step within one file system alone.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix)
    os.close(descriptor)
    partial = Path(name)
    try:
        write(partial)
        # On the disk before it has the name: after a power cut that could else stand for nothing.
        with partial.open("rb") as handle:
            os.fsync(handle.fileno())
        # A temporary file can be read by its maker alone.
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remove_partial(folder: Path) -> None:
    """Removes what a kill left half written, but nothing that a process of this machine may still
    be writing."""
    for partial in folder.rglob(".*.partial"):
        name = PARTIAL.fullmatch(partial.name)
        if name and not is_running(int(name[1])):
            partial.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def make_folder(option: str, folder: Path) -> None:
    """Makes the folder of an option, and removes what a kill left half written there. Raises
    :class:`KVBenchError` where it cannot be written."""
    _check_is_local(option, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial(folder)
    except OSError as error:
        reason = error.strerror or error
        raise KVBenchError(
            f"{option} {folder} cannot be written ({reason}): name another folder"
        ) from error


class AtWorkError(KVBenchError):
    """Another process holds a folder."""


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Locks a folder until the process ends, however it does. Raises :class:`AtWorkError`, which
    names the holder, where another process has locked it.

    One process holds a folder once: where it locks it again, the end of the inner lock ends the
    outer one.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.parent / f".{folder.name}.lock"
    # To append, since opening it to write would empty it, and it names whoever holds the lock.
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(path.stat(), os.fstat(file.fileno())):
                # Its former owner removed it in between, and another may hold a new one.
                raise FileNotFoundError
        except OSError as error:
            file.seek(0)
            owner = f"{file.read(300) or 'another process'} is at work in {folder}"
            raise AtWorkError(
                f"{owner}: wait for its end, or end it, or choose another name"
            ) from error
        file.truncate(0)
        print(f"process {os.getpid()} on {platform.node()}", end="", file=file, flush=True)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def user_path(text: str) -> Path:
    """Turns a text into a path, in the home folder of the user for ``~``. Raises
    :class:`KVBenchError` where that folder is not there."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise KVBenchError(
            f"{text} lies in a home folder that is not there: write the whole path"
        ) from error


def home_folder() -> Path | None:
    """Returns the home folder of the user; None where the system knows of none, as in some
    containers."""
    try:
        return Path.home()
    except RuntimeError:
        return None
