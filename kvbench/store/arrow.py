"""Records joined with their questions and contexts, without a copy of a text for each record."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS, StoredTable
from kvbench.system.files import write_atomically


def write_parquet(path: Path, table: pa.Table) -> None:
    """Writes a table whole or not at all. The types of its columns are those of parquet: a second schema, and least
    and greatest values that nobody asks for, would be more than half of such a file."""
    write_atomically(path, lambda partial: _write(partial, table))


def _write(file: Path, table: pa.Table) -> None:
    with pq.ParquetWriter(file, table.schema, compression="zstd", write_statistics=False, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(table.schema.metadata or {})


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> tuple[pa.Schema, pa.Table]:
    """Returns all columns that a file has, and the rows with those that are asked for. By a handle, which any place
    has.

    Without threads, those that read ahead among them: files are read side by side already, and a process that ends
    while a thread of pyarrow starts is aborted ("terminate called without an active exception"; 4 of 25 runs that ended
    with an error had it).
    """
    with path.open("rb") as file:
        parquet = pq.ParquetFile(file, pre_buffer=False)
        schema = parquet.schema_arrow
        chosen = None if columns is None else [name for name in schema.names if name in columns]
        return schema, parquet.read(chosen, use_threads=False)


Places = NDArray[np.intp]


def places_of_parents(declared: StoredTable, rows: pa.Table, parents: pa.Table, key: Sequence[str]) -> Places:
    """Finds for each row the place of its parent; raises :class:`ValueError` for the first that has none, or two."""
    index = _index(parents, key)
    if not index.is_unique:
        raise ValueError(f"{declared.parent} hold {_key_text(key, index[index.duplicated()][0])} twice")
    keys = _index(rows, key)
    places: Places = index.get_indexer(keys)
    if (places < 0).any():
        missing = keys[places < 0][0]
        raise ValueError(f"{declared.name} tell of {_key_text(key, missing)}, which {declared.parent} do not hold")
    return places


def _index(table: pa.Table, key: Sequence[str]) -> pd.MultiIndex:
    return pd.MultiIndex.from_arrays([table[name].to_pandas() for name in key], names=key)


def _key_text(key: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(key, values, strict=True))


def join_tables(
    records: pa.Table, questions: pa.Table, contexts: pa.Table, of_records: Places, of_questions: Places
) -> pd.DataFrame:
    """Returns one row for each record, with all columns of the three tables. ``of_records``: for each record the place
    of its question; ``of_questions``: for each question that of its context. What is said once is held once: a text, or
    a list, is the same object in all its rows."""
    # Few of its lists are looked at.
    frame = records.to_pandas(types_mapper=lambda kind: pd.ArrowDtype(kind) if pa.types.is_list(kind) else None)
    columns: dict[str, NDArray[np.generic]] = {}
    for declared, table, places in (
        (CONTEXTS, contexts, of_questions[of_records]),
        (QUESTIONS, questions, of_records),
    ):
        names = [name for name in table.column_names if name in declared.columns and name not in columns]
        columns |= {name: _values(table[name])[places] for name in names if name not in RECORDS.columns}
    return pd.concat([pd.DataFrame(columns, index=frame.index), frame], axis=1)


def _values(column: pa.ChunkedArray) -> NDArray[np.generic]:
    if not pa.types.is_list(column.type):
        return np.asarray(column.to_pandas())
    lists = np.empty(len(column), dtype=object)
    lists[:] = column.to_pylist()
    return lists
