"""Writes tables for a paper, each in LaTeX and in Markdown."""

from collections.abc import Mapping
from pathlib import Path

from kvbench.system.files import write_text_atomically
from leaderboards.downloads.print_tables import WRITERS, Rows


def write_tables(folder: Path, tables: Mapping[str, Rows]) -> list[Path]:
    """Writes tables, by the stems of their files, and returns the files."""
    files = []
    for stem, rows in tables.items():
        for suffix, write in WRITERS.items():
            files.append(folder / f"{stem}.{suffix}")
            write_text_atomically(files[-1], write(rows))
    return files
