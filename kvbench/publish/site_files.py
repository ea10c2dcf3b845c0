"""Keeps the list of the files of a site, so that the next site in the folder removes those that it no longer has."""

import json
import re
from collections.abc import Collection
from pathlib import Path

from kvbench.system.files import write_text_atomically

LIST_FILE = "data/site.json"
FILE_NAME = re.compile(r"(data/)?[^/\\]+")  # an edited list cannot lead out of the folder


def remove_former_files(folder: Path, names: Collection[str]) -> None:
    """Removes the files that an earlier site wrote and this one did not, and writes the new list. ``names`` are all
    files of this site, relative to the folder."""
    for name in _former_names(folder):
        path = folder / name
        if name not in names and path.is_file():
            path.unlink()
    write_text_atomically(folder / LIST_FILE, json.dumps(sorted(names), indent=1) + "\n")


def _former_names(folder: Path) -> list[str]:
    """Reads the list; it is empty where there is none or it cannot be read, and then files stay."""
    try:
        listed = json.loads((folder / LIST_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(listed, list):
        return []
    return [
        name for name in listed if isinstance(name, str) and FILE_NAME.fullmatch(name) and name.split("/")[-1] != ".."
    ]
