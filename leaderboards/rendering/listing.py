"""Holds a table of texts, as a page shows it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Listing:
    """A table of texts, written by ``table_of`` of the templates."""

    title: str
    columns: tuple[str, ...]  # the first holds the name of each row
    rows: tuple[tuple[str, ...], ...]
