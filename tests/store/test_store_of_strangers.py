"""Record files that somebody else made: what is wrong with them is named."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from tests.support.small_store import small_store


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("f1", 1e9, "f1 is 1000000000.0, not between 0 and 100"), ("ger", float("nan"), "ger is no number")],
)
def test_a_number_that_no_measure_has_is_refused_in_one_line(
    tmp_path: Path, column: str, value: float, said: str
) -> None:
    store = small_store(tmp_path / "small")
    path = store.record_files()[0]
    table = store.read(RECORDS, path)
    place = table.column_names.index(column)
    values = [value, *table[column].to_pylist()[1:]]
    store.write_table(path, table.set_column(place, table.schema.field(column), pa.array(values, pa.float64())))
    with pytest.raises(KVBenchError, match=re.escape(said)):
        store.frame()
    assert len(store.frame(possible=False)) > len(values)


def test_columns_of_another_name_order_or_type_are_named(tmp_path: Path) -> None:
    store = small_store(tmp_path / "small")
    path = store.record_files()[0]
    table = store.read(RECORDS, path)
    text = table.set_column(table.column_names.index("f1"), "f1", pa.array(["1"] * len(table)))
    for other, said in (
        (table.drop_columns(["f1"]), "it lacks 'f1'"),
        (table.append_column("more", pa.nulls(len(table))), "it has 'more'"),
        (table.select(table.column_names[::-1]), "another order"),
        (text, "its column 'f1' is string, not double"),
    ):
        store.write_table(path, other)
        with pytest.raises(KVBenchError, match=said):
            store.frame()
