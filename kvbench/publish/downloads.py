"""Writes what lies beside the pages of a run: downloads in the folder ``data``."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pandas import DataFrame

from kvbench.store.store import Store, together_once, write_parquet
from kvbench.store.tables import StoredTable, find_table, joined_schema
from kvbench.system.files import write_text_atomically
from leaderboards.downloads.sheets import Sheet

FOLDER = "data"
RECORDS_FILE = "records.parquet"


def sheet_file(sheet: Sheet) -> str:
    """Names the file of a sheet, in the folder of the pages."""
    return f"{FOLDER}/{sheet.name}.csv"


def table_file(name: str) -> str:
    """Names the file of a table of a study that is given out, in the folder of the pages."""
    return f"{FOLDER}/{name}.parquet"


def downloaded_tables(stores: Iterable[Store]) -> list[str]:
    """Names the tables of studies that are given out with some runs."""
    names: list[str] = []
    for store in stores:
        names += (table.name for table in store.study_tables if table.is_download)
    return list(dict.fromkeys(names))


def write_sheets(folder: Path, sheets: Iterable[Sheet]) -> None:
    """Writes each sheet as CSV below ``folder``, that of the pages; raises :class:`KVBenchError`
    where a file cannot be written."""
    for sheet in sheets:
        write_text_atomically(folder / sheet_file(sheet), sheet.csv())


def write_records(folder: Path, parts: Sequence[tuple[Mapping[str, str], DataFrame]]) -> int:
    """Writes all records as one file, with the labels of each part; returns how many there are.
    Raises :class:`KVBenchError` where the file cannot be written."""
    schema = joined_schema()
    tables = []
    for labels, frame in parts:
        rows = pa.Table.from_pandas(frame, schema, preserve_index=False)
        tables.append(_add_labels(rows, labels))
    together = pa.concat_tables(tables).replace_schema_metadata(schema.metadata)
    write_parquet(folder / FOLDER / RECORDS_FILE, together)
    return len(together)


def join_study_tables(
    stores: Sequence[Store], names: Collection[str]
) -> dict[StoredTable, pa.Table]:
    """Reads the tables of studies of some names that any of the stores has, each row once."""
    parts: dict[StoredTable, list[pa.Table]] = {}
    for store in stores:
        for table in store.study_tables:
            if table.name in names:
                parts.setdefault(table, []).append(store.study_table(table))
    return {table: together_once(table, rows) for table, rows in parts.items()}


def write_study_tables(
    folder: Path, parts: Sequence[tuple[Mapping[str, str], Sequence[Store]]]
) -> None:
    """Writes the tables of studies that are given out, each as one file with the labels of the
    records."""
    by_name: dict[str, list[pa.Table]] = {}
    for labels, stores in parts:
        for table, rows in join_study_tables(stores, downloaded_tables(stores)).items():
            by_name.setdefault(table.name, []).append(_add_labels(rows, labels))
    for name, tables in by_name.items():
        metadata = find_table(name).schema.metadata
        together = pa.concat_tables(tables).replace_schema_metadata(metadata)
        write_parquet(folder / table_file(name), together)


def _add_labels(rows: pa.Table, labels: Mapping[str, str]) -> pa.Table:
    for place, (name, label) in enumerate(labels.items()):
        rows = rows.add_column(place, name, pa.array([label] * len(rows), pa.string()))
    return rows
