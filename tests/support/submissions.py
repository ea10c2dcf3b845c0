"""Runs that are handed in: what their check finds, and forged ones."""

from collections.abc import Sequence
from pathlib import Path

from datasets_gen import TASKS
from kvbench.checks.submission import examine
from kvbench.experiments.grid import Grid
from kvbench.models.load import load_model
from kvbench.publish.site import publish_summary
from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record
from policies import Policy, at_ratios
from tests.support.models.runs import execute


def hand_in(
    folder: Path,
    policies: Sequence[Policy],
    contexts: int = 2,
    ratios: Sequence[float] = (0.5, 0.9),
    dtype: str = "float32",
    tables: tuple[str, ...] = (),
) -> Path:
    """Makes a run of a shipped model: all that can be checked of a run can be checked of this
    one."""
    grid = Grid([(TASKS["base"], contexts)], policies, at_ratios(ratios), seed=3, tables=tables)
    store = execute(load_model("reference", "cpu", dtype), grid, folder, "a test")
    publish_summary(store, store.frame())
    return folder


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
