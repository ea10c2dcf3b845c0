"""Writes tables for a paper, each in LaTeX and in Markdown."""

from collections.abc import Mapping
from pathlib import Path

from kvbench.store.store import Store
from kvbench.system.console import printable
from kvbench.system.files import write_text_atomically
from leaderboards.downloads.print_tables import WRITERS, PrintTable


def write_tables(folder: Path, tables: Mapping[str, PrintTable]) -> list[Path]:
    """Writes tables, by the stems of their files, and returns the files."""
    files = []
    for stem, table in tables.items():
        for suffix, write in WRITERS.items():
            files.append(folder / f"{stem}.{suffix}")
            write_text_atomically(files[-1], write(table))
    return files


def model_name(store: Store) -> str:
    """Returns the name of the model; of a model in a local folder that of the folder."""
    model = store.identity.model
    return printable(Path(model).name if Path(model).is_absolute() else model)


def origin_of(store: Store) -> str:
    """Says of which run the numbers of a figure or a table are."""
    identity = store.identity
    commit = f", commit {identity.git_revision[:10]}" if identity.git_revision else ""
    name, began = printable(store.folder.resolve().name), store.run.created[:10]
    return f"Numbers: run {name} of {began}, kvbench {identity.kvbench_version}{commit}."
