"""The committed run of the reference model, as a store; see ``tests/store/test_small_store.py``."""

import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kvbench.store.store import Store
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS, SCHEMA_VERSION, joined_schema

FOLDER = Path(__file__).parents[2] / "data" / "small_store"
VERSION = b"kvbench_schema_version"
AGAIN = (
    "tests/data/small_store is of another schema: make it anew with `make small-store`, compute "
    "the numbers of tests/store/test_small_store.py again without kvbench, and commit both"
)


def small_store(folder: Path) -> Store:
    """The run in a folder that is not there yet: what a page lets one download is all that it
    takes."""
    told = json.loads((FOLDER / "run.json").read_text())
    schema = joined_schema()
    table = pq.read_table(FOLDER / "records.parquet").drop_columns(["model", "setting"])
    of_records = (table.column_names, table.schema.metadata[VERSION])
    if told["schema_version"] != SCHEMA_VERSION or of_records != (
        schema.names,
        schema.metadata[VERSION],
    ):
        pytest.fail(AGAIN)
    folder.mkdir(parents=True)
    shutil.copy(FOLDER / "run.json", folder)
    store = Store.open(folder)
    for task in table["task"].unique().to_pylist():
        rows = table.filter(pc.equal(table["task"], task))
        store.write_chunk(
            task,
            0,
            {one.name: rows.select(list(one.columns)) for one in (CONTEXTS, QUESTIONS, RECORDS)},
        )
    return store
