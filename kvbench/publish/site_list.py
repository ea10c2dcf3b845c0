"""The list of what was published, which is a page of its own.

Every command that writes pages notes them in an entry beside them, and the list is made anew from
all entries. No page is changed by another command: it leads to the list, and directly to those
pages alone that are there when it is written. Runs, comparisons and registers of claims have
folders in ``site``, whose list is ``site/index.html``; a folder elsewhere has a list of its own.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kvbench.publish.places import without_places
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.files import make_folder, write_text_atomically
from leaderboards.pages.all_runs import ListedPages, build_list
from leaderboards.pages.front import CLAIMS_PAGE, FRONT, METHOD
from leaderboards.pages.imported import IMPORTED
from leaderboards.rendering.templating import Neighbours

ROOT = Path("site")  # the folder of all sites, unless a command is given another folder
RUN, COMPARISON, CLAIMS, RESULTS = "run", "comparison", "claims", "imported results"
# A folder has an entry of each kind: a comparison may lie beside the pages of a run.
ENTRY_FILES = {
    RUN: "data/entry.json",
    COMPARISON: "data/entry-comparison.json",
    CLAIMS: "data/entry-claims.json",
    RESULTS: "data/entry-imported.json",
}
LIST = "index.html"  # of the folder of all sites
LIST_ELSEWHERE = "all-runs.html"  # where index.html is the front page of a run
LONGEST_NAME = 80  # letters of a folder's name


class SiteEntry(BaseModel):
    """The pages of one kind in a folder, which are a row of the list."""

    model_config = ConfigDict(extra="forbid")

    kind: str  # a key of ENTRY_FILES
    pages: tuple[str, ...]  # relative to its folder, the first of them to begin with
    model: str
    tasks: tuple[str, ...]
    created: str  # when its first run began; empty where nobody knows
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


def is_listed(folder: Path) -> bool:
    """Tells whether a folder stands in the folder of all sites, which has a list of them."""
    return folder.resolve().parent == ROOT.resolve()


def enlist(
    folder: Path, kind: str, pages: Sequence[Path], stores: Sequence[Store], verdicts: str = ""
) -> None:
    """Notes beside the pages of some runs what they are, and makes the list anew that they stand
    in; raises :class:`KVBenchError` where it cannot be written."""
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
        # Pages that are gone by now are listed no longer.
        pages=tuple(name for name in dict.fromkeys(names) if (folder / name).is_file()),
        model=", ".join(dict.fromkeys(models)),
        tasks=tuple(dict.fromkeys(tasks)),
        created=min(store.run.created for store in stores),
        runs=tuple(runs),
        verdicts=verdicts,
    )
    _write_entry(folder, entry)


def enlist_results(
    folder: Path, page: str, models: Sequence[str], data_sets: Sequence[str]
) -> None:
    """Notes the page of results of another tool, whose files do not tell when they were made, and
    makes the list anew that it stands in; raises :class:`KVBenchError` where it cannot be
    written."""
    entry = SiteEntry(
        kind=RESULTS,
        pages=(page,),
        model=", ".join(dict.fromkeys(models)),
        tasks=tuple(dict.fromkeys(data_sets)),
        created="",
    )
    _write_entry(folder, entry)


def _write_entry(folder: Path, entry: SiteEntry) -> None:
    text = entry.model_dump_json(indent=1)
    write_text_atomically(folder / ENTRY_FILES[entry.kind], text + "\n")
    path = _list_path(folder)
    rows = [_listed_pages("", entry) for entry in _entries_in(folder)]
    if path.name == LIST:
        rows = [_listed_pages(name, entry) for name, entry in _entries(path.parent)]
        # Results of another tool may lie beside the list itself.
        rows += [_listed_pages("", entry) for entry in _entries_in(path.parent)]
    write_text_atomically(path, build_list(rows))


def _list_path(folder: Path) -> Path:
    """Returns the path of the list that the pages of a folder stand in."""
    if is_listed(folder):
        return folder.parent / LIST
    if folder.resolve() == ROOT.resolve():
        return folder / LIST
    return folder / LIST_ELSEWHERE


def _listed_pages(folder: str, entry: SiteEntry) -> ListedPages:
    """Returns the row of an entry. ``folder``: relative to that of the list."""
    name = folder or "+".join(entry.runs)
    if entry.kind != RUN and not folder:
        name = entry.pages[0].removesuffix(".html")
    return ListedPages(
        name=name,
        folder=folder,
        kind=entry.kind,
        pages=entry.pages,
        model=without_places(entry.model),  # entries that earlier versions wrote name places
        tasks=entry.tasks,
        verdicts=entry.verdicts,
        began=entry.created,
    )


def find_neighbours(folder: Path) -> Neighbours:
    """Returns what a page of a folder can lead to: its list, which is made when the page is
    written, and the pages of other commands that are there already."""
    all_runs = _list_path(folder)
    pages = {page.name for page in folder.glob("examples-*.html")}
    pages |= {name for name in (METHOD, IMPORTED, CLAIMS_PAGE) if (folder / name).is_file()}
    if (folder / FRONT).is_file() and all_runs != folder / FRONT:
        pages.add(FRONT)
    if not is_listed(folder):
        return Neighbours(all_runs.name, frozenset(pages))
    for register in all_runs.parent.glob(f"*/{CLAIMS_PAGE}"):
        pages.add(f"../{register.parent.name}/{register.name}")
    return Neighbours(f"../{all_runs.name}", frozenset(pages))


def _sites_of_runs(folder: Path) -> list[tuple[str, SiteEntry]]:
    """Returns the sites of runs beside a folder with their names, the newest first; none outside of
    all sites."""
    if not is_listed(folder):
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
        entries += [(folder.name, entry) for entry in _entries_in(folder)]
    return sorted(entries, key=lambda named: named[1].created, reverse=True)


def _entries_in(folder: Path) -> list[SiteEntry]:
    """Reads the entries of a folder, in the order of their kinds."""
    entries = []
    for kind in ENTRY_FILES:
        entry = _entry(folder, kind)
        if entry is not None:
            entries.append(entry)
    return entries


def _entry(folder: Path, kind: str) -> SiteEntry | None:
    """Reads an entry of a folder; None where it has none, or one that is damaged."""
    try:
        content = (folder / ENTRY_FILES[kind]).read_text(encoding="utf-8")
        return SiteEntry.model_validate_json(content)
    except (OSError, ValueError):  # pydantic's error is one
        return None
