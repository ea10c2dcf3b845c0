"""Where a store lies: a local folder, or any URL that fsspec knows, such as s3://bucket/runs."""

from pathlib import Path
from typing import cast

from upath import UPath

from kvbench.errors import KVBenchError, first_line


def place_of(text: str | Path) -> Path:
    """A path, or what has the methods of one; :class:`KVBenchError` if nothing here can reach it.

    A local URL is a plain path: files are written another way there (:mod:`kvbench.atomic`).
    """
    if "://" not in str(text):
        return Path(text)
    try:
        place = UPath(str(text))
        filesystem = place.fs
    except Exception as error:  # no package, protocol or host of that name, and what each service has of its own
        reason = first_line(error) or type(error).__name__
        raise KVBenchError(
            f"{text} cannot be reached ({reason}): give a folder, or a URL that fsspec knows and whose package is "
            "installed, such as s3fs for s3://"
        ) from error
    if "file" in filesystem.protocol:
        return Path(place.path)
    return cast(Path, place)


def is_remote(place: Path) -> bool:
    return isinstance(place, UPath)
