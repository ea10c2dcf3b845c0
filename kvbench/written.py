"""What ``site`` has written into a folder: the next one takes away what it no longer has, and nothing else."""

import json
import re
from collections.abc import Collection
from pathlib import Path

from kvbench.atomic import write_text_atomically

LIST_FILE = "data/site.json"
OWN = re.compile(r"(data/)?[^/\\]+")  # names in the folder of a site; a list that was edited leads nowhere else


def take_away_former(folder: Path, names: Collection[str]) -> None:
    """Removes the files that an earlier site of the folder wrote and this one did not, and writes what there is now.
    ``names``: of all files of this site, relative to the folder."""
    for name in _listed(folder):
        path = folder / name
        if name not in names and path.is_file():
            path.unlink()
    write_text_atomically(folder / LIST_FILE, json.dumps(sorted(names), indent=1) + "\n")


def _listed(folder: Path) -> list[str]:
    """Nothing where there is no list, or none that can be read: then files stay."""
    try:
        listed = json.loads((folder / LIST_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(listed, list):
        return []
    return [name for name in listed if isinstance(name, str) and OWN.fullmatch(name) and name.split("/")[-1] != ".."]
