"""A place is a local folder, or any URL that fsspec knows, such as s3://bucket/runs."""

import sys
from pathlib import Path
from typing import cast

from kvbench.system.errors import KVBenchError, first_line
from policies.declaration.lazy import LazyModule

upath = LazyModule("upath")  # its import takes a tenth of a second, and few places are URLs
FORGETFUL = ("memory",)  # protocols whose files are gone when a process ends, as are those of chains with "::"


def place_of(text: str | Path) -> Path:
    """Turns a text into a path, or into an object with the methods of one; raises :class:`KVBenchError` if no installed
    package can reach it. A local URL becomes a plain path, where files are written in another way
    (:mod:`kvbench.system.files`)."""
    protocol, separator, _ = str(text).partition("://")
    if not separator:
        return Path(text)
    if not protocol or "::" in protocol or protocol in FORGETFUL:
        what = "names no protocol" if not protocol else "keeps nothing when the command ends"
        raise KVBenchError(f"{text} {what}: give a folder, or a URL of a service, such as s3://bucket/runs")
    try:
        place = upath.UPath(str(text))
        filesystem = place.fs
    except Exception as error:  # no such package, protocol or host; and each service raises its own
        reason = first_line(error) or type(error).__name__
        raise KVBenchError(
            f"{text} cannot be reached ({reason}): give a folder, or a URL that fsspec knows and whose package is "
            "installed, such as s3fs for s3://"
        ) from error
    if "file" in filesystem.protocol:
        return Path(place.path)
    return cast(Path, place)


def user_path(text: str) -> Path:
    """Turns a text into a path, in the home folder of the user for ``~``."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise KVBenchError(f"{text} lies in a home folder that is not there: write the whole path") from error


def local_folder(text: str | Path) -> Path:
    """Turns a text into the path of a local folder; raises :class:`KVBenchError` for a URL, which a path would turn
    into a folder of its name."""
    if "://" in str(text):
        raise KVBenchError(f"{text} is a URL, and pages are written into a folder: give one, and copy it there")
    return Path(text)


def is_place(value: object) -> bool:
    """Tells a path or a place at a URL from other things; a place at a URL is no :class:`Path`."""
    return isinstance(value, Path) or ("upath" in sys.modules and isinstance(value, upath.UPath))


def is_remote(place: Path) -> bool:
    return not isinstance(place, Path)
