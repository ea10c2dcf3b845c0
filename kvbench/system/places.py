"""Turns what a user typed into the path of a local folder or file."""

from pathlib import Path

from kvbench.system.errors import KVBenchError


def user_path(text: str) -> Path:
    """Turns a text into a path, in the home folder of the user for ``~``."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise KVBenchError(f"{text} lies in a home folder that is not there: write the whole path") from error


def local_folder(text: str | Path) -> Path:
    """Raises :class:`KVBenchError` for a URL, which a path would turn into a folder of its name."""
    if "://" in str(text):
        raise KVBenchError(f"{text} is a URL: give a local folder")
    return Path(text)
