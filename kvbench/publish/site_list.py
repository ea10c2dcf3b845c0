"""The list of all sites: runs, comparisons and registers of claims have folders in ``site``, which
begins with it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kvbench.publish.places import without_places
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.files import make_folder, write_atomically, write_text_atomically
from leaderboards.pages.front import CLAIMS_PAGE, FRONT, METHOD
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
    verdicts: str = ""  # how many there are of each, in words; empty of entries of earlier versions


def make_site_folder(option: str, site: Path | None) -> None:
    """Makes the folder that an option gives to a site, or that of all sites; raises
    :class:`KVBenchError` where that is not possible, or where the page of the site would replace
    the list of all sites."""
    if site is not None and site.resolve() == ROOT.resolve():
        advice = f"give {ROOT}/NAME, or leave {option} out"
        raise KVBenchError(f"{option} {site} holds the list of all runs and comparisons: {advice}")
    make_folder(option, site or ROOT)


def site_folder(site: Path | None, stores: Sequence[Store]) -> Path:
    """Returns the folder that was given, or else the one that runs have in the folder of all
    sites."""
    return site or ROOT / "+".join(store.folder.name for store in stores)[:LONGEST_NAME]


def _is_listed(folder: Path) -> bool:
    return folder.resolve().parent == ROOT.resolve()


def enlist(
    folder: Path, kind: str, pages: Sequence[Path], stores: Sequence[Store], verdicts: str = ""
) -> None:
    """Notes what a site is, links its pages, and writes the list of all sites anew if it lies
    there."""
    names = [page.name for page in pages]
    former = _entry(folder, kind)
    if kind != RUN and former is not None:  # comparisons of an earlier command stay there
        names += former.pages
    models, tasks, runs = [], list[str](), []
    for store in stores:
        models.append(store.identity.model)
        tasks += (task.name for task in store.identity.tasks)
        runs.append(store.folder.name)
    entry = SiteEntry(
        kind=kind,
        pages=tuple(name for name in dict.fromkeys(names) if (folder / name).is_file()),
        model=", ".join(dict.fromkeys(models)),
        tasks=tuple(dict.fromkeys(tasks)),
        created=min(store.run.created for store in stores),
        runs=tuple(runs),
        verdicts=verdicts,
    )
    write_text_atomically(folder / ENTRY_FILES[kind], entry.model_dump_json(indent=1) + "\n")
    if _is_listed(folder):
        _write_list(folder.parent)
    link_pages(folder)


def _write_list(root: Path) -> None:
    """Writes the list of all sites anew."""
    entries = []
    for name, entry in _entries(root):
        # Entries of sites that earlier versions wrote name places.
        model = without_places(entry.model)
        entries.append({"name": name, **entry.model_dump(), "model": model})
    write_text_atomically(root / LIST, render("sites.html.j2", entries=entries))
    link_pages(root)


def link_pages(folder: Path) -> None:
    """Shows the links to pages that templates hide as long as those are not there."""
    targets = _linked_pages(folder)
    for path in filter(Path.is_file, folder.glob("*.html")):
        former = path.read_bytes()
        page = former
        for target in targets:
            page = show_link(page, target)
        if page != former:
            write_atomically(path, partial(_write_page, page))


def _linked_pages(folder: Path) -> list[str]:
    """Lists the pages that are there to be linked, by their addresses from a folder of pages."""
    single = (FRONT, METHOD, IMPORTED, CLAIMS_PAGE)
    targets = [name for name in single if (folder / name).is_file()]
    targets += [page.name for page in folder.glob("examples-*.html")]
    if _is_listed(folder):
        root = folder.parent
        if (root / LIST).is_file():
            targets.append(f"../{LIST}")
        registers = root.glob(f"*/{CLAIMS_PAGE}")
        targets += [f"../{page.parent.name}/{page.name}" for page in registers]
    return targets


def _write_page(page: bytes, file: Path) -> None:
    file.write_bytes(page)


def link_sites(folder: Path) -> None:
    """Shows the links of all sites beside a folder, if it is one of them."""
    if _is_listed(folder):
        for name, _ in _entries(folder.parent):
            link_pages(folder.parent / name)


def _sites_of_runs(folder: Path) -> list[tuple[str, SiteEntry]]:
    """Returns the sites of runs beside a folder with their names, the newest first; none outside of
    all sites."""
    if not _is_listed(folder):
        return []
    return [(name, entry) for name, entry in _entries(folder.parent) if entry.kind == RUN]


def site_of_run(folder: Path, store: Store) -> str:
    """Names the newest site of a run in the folder of all sites, if it has one and the given folder
    lies there too."""
    for name, entry in _sites_of_runs(folder):
        if store.folder.name in entry.runs:
            return name
    return ""


def run_site_beside(folder: Path, store: Store) -> str:
    """Names the newest site of a run in the folder of all sites, first one that shares a task: its
    page on method explains the same words. Empty where the pages of a run lie in the folder
    itself."""
    if (folder / FRONT).is_file():
        return ""
    sites = _sites_of_runs(folder)
    tasks = {task.name for task in store.identity.tasks}
    for name, entry in sites:
        if not tasks.isdisjoint(entry.tasks):
            return name
    return sites[0][0] if sites else ""


def _entries(root: Path) -> list[tuple[str, SiteEntry]]:
    """Reads the entries of all sites with the names of their folders, the newest first."""
    entries = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        for kind in ENTRY_FILES:
            entry = _entry(folder, kind)
            if entry is not None:
                entries.append((folder.name, entry))
    return sorted(entries, key=lambda named: named[1].created, reverse=True)


def _entry(folder: Path, kind: str) -> SiteEntry | None:
    """Reads an entry of a folder; None where it has none, or one that is damaged."""
    try:
        content = (folder / ENTRY_FILES[kind]).read_text(encoding="utf-8")
        return SiteEntry.model_validate_json(content)
    except (OSError, ValueError):  # pydantic's error is one
        return None
