"""From the store to what people look at: summary.json and the page."""

from pathlib import Path

from kvbench.atomic import write_text_atomically
from kvbench.store import Store
from leaderboards import SummaryRow, build_page, summarise

PAGE_NAME = "index.html"


def publish_summary(store: Store) -> list[SummaryRow]:
    """Aggregates all records and writes ``summary.json`` beside them."""
    rows = summarise(store.frame())
    store.write_summary([row.model_dump() for row in rows])
    return rows


def publish_site(store: Store, folder: Path) -> tuple[Path, list[SummaryRow]]:
    """Writes the page, self-contained, and the summary; returns the page's path and the rows."""
    rows = publish_summary(store)
    path = folder / PAGE_NAME
    write_text_atomically(path, build_page(store.run.model_dump(), rows))
    return path, rows
