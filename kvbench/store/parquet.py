"""Parquet files as small as they can be: a run has hundreds, and of a small one the description is the most."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

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
