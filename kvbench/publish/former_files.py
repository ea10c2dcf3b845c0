"""Removes what an earlier build of a site wrote and the present one does not: it may hold texts of
other people.

``data/files.json`` lists what kvbench wrote for the pages of runs; no other file is ever removed.
Comparisons, registers of claims and imported results lie beside these pages under names of their
own, and stay.
"""

from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter

from kvbench.publish.downloads import FOLDER, RECORDS_FILE
from kvbench.store.tables import names_of_tables
from kvbench.system.files import write_text_atomically
from leaderboards.studies.declaration import studies

MANIFEST = f"{FOLDER}/files.json"
SUFFIXES = (".html", ".csv", ".parquet")  # of all that is ever listed
# What a site has that was written when there was no list.
BEFORE_MANIFESTS = ("task-*.html", "examples-*.html")
_NAMES = TypeAdapter(list[str])


def announce_files(folder: Path, names: Collection[str]) -> None:
    """Lists the files that are about to be written beside those that are there: whoever interrupts
    a build leaves no file behind that is not listed. Raises :class:`KVBenchError` where the list
    cannot be written."""
    _write(folder, {*_listed(folder), *names})


def remove_former_files(folder: Path, names: Collection[str]) -> None:
    """Removes the listed files but those of the present build, of these names, and lists these
    alone; raises :class:`KVBenchError` where the list cannot be written."""
    for name in _listed(folder) - {*names}:
        (folder / name).unlink(missing_ok=True)
    _write(folder, names)


def _write(folder: Path, names: Iterable[str]) -> None:
    write_text_atomically(
        folder / MANIFEST, _NAMES.dump_json(sorted(names), indent=1).decode() + "\n"
    )


def _listed(folder: Path) -> set[str]:
    """Returns the names of the list that are there; without a list, of a site of runs, those that
    kvbench gives."""
    path = folder / MANIFEST
    if path.is_file():
        try:
            names = _NAMES.validate_json(path.read_bytes())
        except ValueError:  # somebody else wrote it, or damaged it
            names = []
    else:
        names = _names_before_manifests(folder)
    return {name for name in names if _is_of_site(name) and (folder / name).is_file()}


def _names_before_manifests(folder: Path) -> list[str]:
    """Names what a site of runs holds that was written before there were lists."""
    if not (folder / FOLDER / "entry.json").is_file():
        return []
    names: list[str] = []
    for pattern in BEFORE_MANIFESTS:
        names += (page.name for page in folder.glob(pattern))
    study_names = set(studies())
    for page in folder.glob("*.html"):
        # A study has a page for each board: routing.html, routing.2.html.
        if page.name.partition(".")[0] in study_names:
            names.append(page.name)
    names += (f"{FOLDER}/{table}.parquet" for table in names_of_tables())
    names.append(f"{FOLDER}/{RECORDS_FILE}")
    return names


def _is_of_site(name: str) -> bool:
    """Tells whether a name is one of a file in the folder: a list may come from anywhere."""
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and path.suffix in SUFFIXES
    return inside and path.parent in (PurePosixPath(), PurePosixPath(FOLDER))
