"""Runs that are handed in: what their check finds, and forged ones."""

from pathlib import Path

from kvbench.checks.submission import examine
from kvbench.publish.site import publish_summary
from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record


def wrong(folder: Path, cells: int = 0) -> dict[str, str]:
    """What is found by the checks that fail."""
    return {one.check: one.text for one in examine(folder, cells=cells) if one.outcome == "wrong"}


def unchecked(folder: Path, cells: int = 0) -> set[str]:
    return {one.check for one in examine(folder, cells=cells) if one.outcome == "unchecked"}


def give_answers_of_full(folder: Path, policy: str) -> None:
    """Stores the full cache's answers and their scores under a policy's name, beside the policy's
    own costs."""
    store = Store.open(folder)
    full = {
        record.question_id: record
        for record in store.read_rows(RECORDS, store.path(RECORDS, "base", 0, "full"))
    }
    path = store.path(RECORDS, "base", 0, policy)
    taken = (
        "output_text",
        "output_token_ids",
        "ended",
        "right",
        "gold_nll",
        "delta_nll",
        "masked",
        "corrupted",
        "due",
    )

    def forged(row: Record) -> Record:
        return row.model_copy(update={name: getattr(full[row.question_id], name) for name in taken})

    rows = store.read_rows(RECORDS, path)
    store.write_rows(RECORDS, path, [forged(row) for row in rows])
    assert store.read_rows(RECORDS, path) != rows
    rescore(store)
    publish_summary(store, store.frame())
