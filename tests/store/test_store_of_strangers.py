"""Record files that somebody else made: what is wrong with them is named."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from kvbench.store.run_file import read_run_file
from kvbench.store.scoring import rescore
from kvbench.store.store import Store, write_parquet
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from tests.support.records.small_store import small_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The committed run, to be spoilt."""
    return small_store(tmp_path / "small")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("f1", 1e9, "f1 is 1000000000.0, not between 0 and 100"),
        ("ger", float("nan"), "ger is no number"),
    ],
)
def test_a_number_that_no_measure_has_is_refused_in_one_line(
    store: Store, column: str, value: float, said: str
) -> None:
    path = store.record_files()[0]
    table = store.read(RECORDS, path)
    place = table.column_names.index(column)
    values = [value, *table[column].to_pylist()[1:]]
    write_parquet(
        path, table.set_column(place, table.schema.field(column), pa.array(values, pa.float64()))
    )
    with pytest.raises(KVBenchError, match=re.escape(said)):
        store.frame()


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("level_kind", "ratiox", "level_kind is 'ratiox', not one of ratio, budget"),
        ("ger_by_layer", [0.5] * 100_000, "ger_by_layer tells of more than 1000 layers"),
    ],
)
def test_what_no_run_has_is_named_with_its_file(
    store: Store, column: str, value: object, said: str
) -> None:
    path = store.record_files()[0]
    rows = store.read_rows(RECORDS, path)
    store.write_rows(RECORDS, path, [rows[0].model_copy(update={column: value}), *rows[1:]])
    with pytest.raises(KVBenchError, match=re.escape(f"{path} cannot be read ({said}")):
        store.frame()


@pytest.mark.parametrize(("hidden", "said"), [("\u202e", "202E"), ("\x1b", "001B")])
def test_a_name_that_hides_a_character_is_refused_and_shown(
    store: Store, hidden: str, said: str
) -> None:
    path = store.folder / "run.json"
    path.write_text(path.read_text().replace('"knorm"', json.dumps(f"kn{hidden}orm")))
    with pytest.raises(KVBenchError, match=f"U.{said}, which cannot be seen, stands in 'kn"):
        read_run_file(store.folder)


def test_columns_of_another_name_order_or_type_are_named(store: Store) -> None:
    path = store.record_files()[0]
    table = store.read(RECORDS, path)
    text = table.set_column(table.column_names.index("f1"), "f1", pa.array(["1"] * len(table)))
    for other, said in (
        (table.drop_columns(["policy"]), "it lacks 'policy'"),
        (table.append_column("more", pa.nulls(len(table))), "it has 'more'"),
        (table.select(table.column_names[::-1]), "another order"),
        (text, "its column 'f1' is string, not double"),
    ):
        write_parquet(path, other)
        with pytest.raises(KVBenchError, match=said):
            store.frame()


def test_score_computes_a_metric_that_an_earlier_version_did_not_have(store: Store) -> None:
    path, expected = store.record_files()[0], store.frame()
    table = store.read(RECORDS, path)
    write_parquet(path, table.drop_columns(["em", "f1"]))
    with pytest.raises(KVBenchError, match=r"lacks '(em|f1)': .*python -m kvbench score .*small"):
        store.frame()
    assert rescore(store) == (len(expected), len(table))
    pd.testing.assert_frame_equal(store.frame(), expected)


def test_reading_starts_no_threads_of_pyarrow(store: Store) -> None:
    """A process that ends by an error while they start is aborted: "terminate called without an
    active exception"."""
    threads = (
        "import os; from pathlib import Path; from kvbench.store.store import read_parquet; count "
        "= lambda: len(os.listdir('/proc/self/task')); before = count(); "
        f"[read_parquet(Path(path)) for path in {list(map(str, store.record_files()))}]; "
        f"print(count() - before)"
    )
    run = subprocess.run(
        [sys.executable, "-c", threads], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) == 0


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("tasks", []),
        ("tasks", [{"contexts": 1}]),
        ("policies", [{"name": "full", "ratios": [0], "tasks": ["base"]}] * 2),
    ],
)
def test_an_edited_identity_is_one_clear_line(store: Store, part: str, content: object) -> None:
    path = store.folder / "run.json"
    run = json.loads(path.read_text())
    run["identity"][part] = content
    path.write_text(json.dumps(run))
    with pytest.raises(
        KVBenchError,
        match=r"run.json is damaged|records of the task 'base', which run.json does not",
    ):
        Store.open(store.folder).frame()


def test_damage_is_named_with_the_file(store: Store, tmp_path: Path) -> None:
    path = store.path(RECORDS, "base", 0, "full")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(KVBenchError, match=r"full\.parquet cannot be read"):
        store.frame()
    (store.folder / "run.json").write_text("{}")
    with pytest.raises(
        KVBenchError, match=r"run.json is damaged \(schema_version: Field required\)"
    ):
        Store.open(store.folder)
    with pytest.raises(KVBenchError, match="holds no run"):
        Store.open(tmp_path / "nowhere")
