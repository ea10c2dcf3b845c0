"""From the store to what people look at: summary.json and the page."""

from pathlib import Path

from kvbench.errors import KVBenchError
from kvbench.store import Store
from leaderboards import SummaryRow, summarise, write_page


def publish_summary(store: Store) -> list[SummaryRow]:
    """Aggregates all records and writes ``summary.json`` beside them."""
    rows = summarise(store.frame())
    store.write_summary([row.model_dump() for row in rows])
    return rows


def publish_site(store: Store, folder: Path) -> Path:
    """Writes ``index.html``, self-contained; returns its path."""
    rows = publish_summary(store)
    try:
        return write_page(folder, store.run.model_dump(), rows)
    except OSError as error:
        raise KVBenchError(f"cannot write the page to {folder}: {error.strerror or error}") from error
