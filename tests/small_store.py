"""The committed run of the reference model, as a store; see ``tests/test_small_store.py``."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kvbench.record import SCHEMA_VERSION, arrow_schema
from kvbench.store import Store

FOLDER = Path(__file__).parent / "data" / "small_store"
VERSION = b"kvbench_schema_version"
AGAIN = (
    "tests/data/small_store is of another schema: make it anew with `make small-store`, compute the numbers of "
    "tests/test_small_store.py again without kvbench, and commit both"
)


def small_store(folder: Path) -> Store:
    """The run in a folder that is not there yet: what a page lets one download is all that it takes."""
    told = json.loads((FOLDER / "run.json").read_text())
    schema = arrow_schema()
    table = pq.read_table(FOLDER / "records.parquet").drop_columns(["model", "setting"])
    of_records = (table.column_names, table.schema.metadata[VERSION])
    if told["schema_version"] != SCHEMA_VERSION or of_records != (schema.names, schema.metadata[VERSION]):
        pytest.fail(AGAIN)
    folder.mkdir(parents=True)
    shutil.copy(FOLDER / "run.json", folder)
    store = Store.open(folder)
    for (task, policy), rows in table.select(["task", "policy"]).to_pandas().groupby(["task", "policy"]):
        store.write_table(store.record_file(task, 0, policy), table.take(rows.index.to_numpy()))
    return store
