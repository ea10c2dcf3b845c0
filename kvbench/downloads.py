"""What is beside the pages of a run: downloads in the folder ``data``, and a page of results from elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pandas import DataFrame

from kvbench.atomic import write_atomically, write_text_atomically
from kvbench.parquet import write_parquet
from kvbench.tables import joined_schema
from leaderboards import FRONT, IMPORTED, Sheet, linked

FOLDER = "data"
RECORDS_FILE = "records.parquet"


def write_sheets(folder: Path, sheets: Iterable[Sheet]) -> list[str]:
    """Each as CSV and as JSON. ``folder``: that of the pages. Returns the names of the files in it."""
    written = []
    for sheet in sheets:
        for name, text in sheet.files():
            write_text_atomically(folder / FOLDER / name, text)
            written.append(f"{FOLDER}/{name}")
    return written


def write_records(folder: Path, parts: Sequence[tuple[Mapping[str, str], DataFrame]]) -> int:
    """All records as one file; returns how many there are. ``parts``: with columns that are the same in each of the
    records of a part, as the sheets have them."""
    schema = joined_schema()
    tables = []
    for labels, frame in parts:
        table = pa.Table.from_pandas(frame, schema, preserve_index=False)
        for place, (name, label) in enumerate(labels.items()):
            table = table.add_column(place, name, pa.array([label] * len(frame), pa.string()))
        tables.append(table)
    together = pa.concat_tables(tables).replace_schema_metadata(schema.metadata)
    write_parquet(folder / FOLDER / RECORDS_FILE, together)
    return len(together)


def link_pages(folder: Path) -> None:
    """Where both are in a folder, the front page leads to what is imported, and that back."""
    pages = {folder / FRONT: IMPORTED, folder / IMPORTED: FRONT}
    if all(path.is_file() for path in pages):
        for path, other in pages.items():
            page = linked(path.read_bytes(), other)
            write_atomically(path, lambda partial, page=page: partial.write_bytes(page))  # type: ignore[misc]
