"""Lets one process at a time work in a folder."""

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kvbench.system.errors import KVBenchError
from kvbench.system.places import is_remote


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Holds a lock beside a local folder, which the system lets go when this process ends, however it does. Raises
    :class:`KVBenchError` that names the process which holds it. A place at a URL has none."""
    if is_remote(folder):
        yield
        return
    path = folder.parent / f".{folder.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path, folder) as file:
        file.truncate(0)
        print(f"process {os.getpid()} on {platform.node()}", end="", file=file, flush=True)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _locked(path: Path, folder: Path) -> TextIO:
    """Opens a file and locks it, once more where its former owner has removed it in between: then another process may
    hold the new file of that name."""
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        except OSError as error:
            file.seek(0)
            owner = file.read(300) or "another process"
            file.close()
            raise KVBenchError(
                f"{owner} is at work in {folder}: wait for its end, or end it, then start again; or choose another name"
            ) from error
        file.close()
