"""A place is a local folder, or any URL that fsspec knows, such as s3://bucket/runs."""

from pathlib import Path
from typing import cast

from upath import UPath

from kvbench.system.errors import KVBenchError, first_line


def place_of(text: str | Path) -> Path:
    """Turns a text into a path, or into an object with the methods of one; raises :class:`KVBenchError` if no installed
    package can reach it. A local URL becomes a plain path, where files are written in another way
    (:mod:`kvbench.system.files`)."""
    if "://" not in str(text):
        return Path(text)
    try:
        place = UPath(str(text))
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


def is_place(value: object) -> bool:
    """Tells a path or a place at a URL from other things; a place at a URL is no :class:`Path`."""
    return isinstance(value, Path | UPath)


def is_remote(place: Path) -> bool:
    return isinstance(place, UPath)
