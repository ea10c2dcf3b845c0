"""The list of all sites: each run and comparison has a folder of its own in ``site``, and ``site/index.html`` leads to
them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kvbench.publish.site_files import remove_former_files
from kvbench.store.store import Store
from kvbench.system.files import write_atomically, write_text_atomically
from leaderboards.rendering.templating import linked, render

ROOT = Path("site")  # the folder of all sites, unless a command is given another folder
ENTRY_FILE = "data/entry.json"
LIST = "index.html"
LONGEST_NAME = 80  # letters of a folder's name


class Entry(BaseModel):
    """What the list says of one site."""

    model_config = ConfigDict(extra="forbid")

    kind: str  # run or comparison
    pages: tuple[str, ...]  # relative to its folder, the first of them to begin with
    model: str
    tasks: tuple[str, ...]
    created: str  # when its first run began


def folder_of(site: Path | None, stores: Sequence[Store]) -> Path:
    """Returns the folder that was given, or else the one that runs have in the folder of all sites."""
    return site or ROOT / "+".join(store.folder.name for store in stores)[:LONGEST_NAME]


def enlist(folder: Path, kind: str, pages: Sequence[Path], stores: Sequence[Store]) -> None:
    """Notes what a site is, and, where it lies in the folder of all sites, writes their list anew and links its pages
    to it."""
    identities = [store.identity for store in stores]
    entry = Entry(
        kind=kind,
        pages=tuple(dict.fromkeys([*(page.name for page in pages), *(_pages_of(folder, kind))])),
        model=", ".join(dict.fromkeys(identity.model for identity in identities)),
        tasks=tuple(dict.fromkeys(task.name for identity in identities for task in identity.tasks)),
        created=min(store.run.created for store in stores),
    )
    write_text_atomically(folder / ENTRY_FILE, entry.model_dump_json(indent=1) + "\n")
    if folder.resolve().parent != ROOT.resolve():
        return
    for page in folder.glob("*.html"):
        content = linked(page.read_bytes(), f"../{LIST}")
        write_atomically(page, lambda partial, content=content: partial.write_bytes(content))  # type: ignore[misc]
    entries = _entries(folder.parent)
    remove_former_files(folder.parent, [LIST])
    write_text_atomically(folder.parent / LIST, render("sites.html.j2", entries=entries))


def _pages_of(folder: Path, kind: str) -> tuple[str, ...]:
    """Returns the pages of comparisons that an earlier command wrote to a folder, which this one leaves there."""
    former = _entry(folder)
    if former is None or former.kind != kind or kind == "run":
        return ()
    return tuple(page for page in former.pages if (folder / page).is_file())


def _entries(root: Path) -> list[dict[str, Any]]:
    """Reads the entries of all sites, the newest first; what cannot be read is left out."""
    found = [(folder.name, entry) for folder in root.iterdir() if (entry := _entry(folder)) is not None]
    found.sort(key=lambda one: one[0])
    found.sort(key=lambda one: one[1].created, reverse=True)
    return [{"name": name, **entry.model_dump()} for name, entry in found]


def _entry(folder: Path) -> Entry | None:
    try:
        return Entry.model_validate(json.loads((folder / ENTRY_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError):
        return None
