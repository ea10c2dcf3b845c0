"""The list of all sites: runs, comparisons and registers of claims have folders in ``site``, which begins with it."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kvbench.publish.places import without_places
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.files import make_folder, write_atomically, write_text_atomically
from leaderboards.pages.claims import CLAIMS_PAGE
from leaderboards.pages.front import FRONT, METHOD
from leaderboards.pages.imported import IMPORTED
from leaderboards.rendering.templating import render, show_link

ROOT = Path("site")  # the folder of all sites, unless a command is given another folder
RUN, COMPARISON, CLAIMS = "run", "comparison", "claims"
# A folder has an entry of each kind: a comparison may lie beside the pages of a run.
ENTRY_FILES = {
    RUN: "data/entry.json",
    COMPARISON: "data/entry-comparison.json",
    CLAIMS: "data/entry-claims.json",
}
LIST = "index.html"
LONGEST_NAME = 80  # letters of a folder's name


class SiteEntry(BaseModel):
    """A row of the list of all sites."""

    model_config = ConfigDict(extra="forbid")

    kind: str  # run, comparison or claims
    pages: tuple[str, ...]  # relative to its folder, the first of them to begin with
    model: str
    tasks: tuple[str, ...]
    created: str  # when its first run began
    runs: tuple[str, ...] = ()  # names


def make_site_folder(option: str, site: Path | None) -> None:
    """Makes the folder that an option gives to a site, or that of all sites; raises :class:`KVBenchError` where that is
    not possible, or where the page of the site would replace the list of all sites."""
    if site is not None and site.resolve() == ROOT.resolve():
        advice = f"give {ROOT}/NAME, or leave {option} out"
        raise KVBenchError(f"{option} {site} holds the list of all runs and comparisons: {advice}")
    make_folder(option, site or ROOT)


def folder_of(site: Path | None, stores: Sequence[Store]) -> Path:
    """Returns the folder that was given, or else the one that runs have in the folder of all sites."""
    return site or ROOT / "+".join(store.folder.name for store in stores)[:LONGEST_NAME]


def _is_listed(folder: Path) -> bool:
    return folder.resolve().parent == ROOT.resolve()


def enlist(folder: Path, kind: str, pages: Sequence[Path], stores: Sequence[Store]) -> None:
    """Notes what a site is, links its pages, and writes the list of all sites anew if it lies there."""
    identities = [store.identity for store in stores]
    former = (
        _entry(folder, kind) if kind != RUN else None
    )  # comparisons that an earlier command wrote stay there
    names = [*(page.name for page in pages), *(former.pages if former else ())]
    entry = SiteEntry(
        kind=kind,
        pages=tuple(name for name in dict.fromkeys(names) if (folder / name).is_file()),
        model=", ".join(dict.fromkeys(identity.model for identity in identities)),
        tasks=tuple(dict.fromkeys(task.name for identity in identities for task in identity.tasks)),
        created=min(store.run.created for store in stores),
        runs=tuple(store.folder.name for store in stores),
    )
    write_text_atomically(folder / ENTRY_FILES[kind], entry.model_dump_json(indent=1) + "\n")
    if _is_listed(folder):
        root = folder.parent
        # Entries of sites that earlier versions wrote name places.
        entries = [
            {"name": name, **entry.model_dump(), "model": without_places(entry.model)}
            for name, entry in _entries(root)
        ]
        write_text_atomically(root / LIST, render("sites.html.j2", entries=entries))
        link_pages(root)
    link_pages(folder)


def link_pages(folder: Path) -> None:
    """Shows the links to pages that templates hide as long as those are not there."""
    others = [name for name in (FRONT, METHOD, IMPORTED, CLAIMS_PAGE) if (folder / name).is_file()]
    others += [page.name for page in folder.glob("examples-*.html")]
    if _is_listed(folder):
        others += [f"../{LIST}"] if (folder.parent / LIST).is_file() else []
        others += [
            f"../{page.parent.name}/{page.name}" for page in folder.parent.glob(f"*/{CLAIMS_PAGE}")
        ]
    for path in filter(Path.is_file, folder.glob("*.html")):
        page = former = path.read_bytes()
        for other in others:
            page = show_link(page, other)
        if page != former:
            write_atomically(path, lambda partial, page=page: partial.write_bytes(page))  # type: ignore[misc]


def link_sites(folder: Path) -> None:
    if _is_listed(folder):
        for name, _ in _entries(folder.parent):
            link_pages(folder.parent / name)


def _sites_of_runs(folder: Path) -> list[tuple[str, SiteEntry]]:
    """Returns the sites of runs beside a folder with their names, the newest first; none outside of all sites."""
    entries = _entries(folder.parent) if _is_listed(folder) else []
    return [(name, entry) for name, entry in entries if entry.kind == RUN]


def site_of_run(folder: Path, store: Store) -> str:
    """Names the newest site of a run in the folder of all sites, if it has one and the given folder lies there too."""
    return next(
        (name for name, entry in _sites_of_runs(folder) if store.folder.name in entry.runs), ""
    )


def run_site_beside(folder: Path, store: Store) -> str:
    """Names the newest site of a run in the folder of all sites, first one that shares a task: its page on method
    explains the same words. Empty where the pages of a run lie in the folder itself."""
    sites = [] if (folder / FRONT).is_file() else _sites_of_runs(folder)
    tasks = {task.name for task in store.identity.tasks}
    nearest = min(sites, key=lambda one: tasks.isdisjoint(one[1].tasks), default=None)
    return nearest[0] if nearest else ""


def _entries(root: Path) -> list[tuple[str, SiteEntry]]:
    """Reads the entries of all sites with the names of their folders, the newest first."""
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    entries = [
        (path.name, entry)
        for path in folders
        for kind in ENTRY_FILES
        if (entry := _entry(path, kind))
    ]
    return sorted(entries, key=lambda one: one[1].created, reverse=True)


def _entry(folder: Path, kind: str) -> SiteEntry | None:
    try:
        return SiteEntry.model_validate_json(
            (folder / ENTRY_FILES[kind]).read_text(encoding="utf-8")
        )
    except (OSError, ValueError):  # pydantic's error is one
        return None
