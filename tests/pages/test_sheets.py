"""What is downloaded: numbers come back as they were, texts compute nothing, and names are those of
files."""

import io
import math
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.publish.downloads import RECORDS_FILE, write_records
from kvbench.store.tables import JOINED, SCHEMA_VERSION
from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.boards.board import all_standings, make_boards
from leaderboards.downloads.sheets import Sheet, file_name
from leaderboards.downloads.tables import board_sheet, cells_sheet
from tests.support.records.synthetic_records import failing, realistic_records

# What a spreadsheet would compute, and what would end a cell, a row or a script.
HOSTILE = [
    '=HYPERLINK("https://example.invalid")',
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    'a "quoted", cell\nof two lines',
    "</script><script>alert(1)</script>",
    "\u2028\u202e\x1b[31m",
]


def read_csv(text: str) -> pd.DataFrame:
    return pd.read_csv(
        io.StringIO(text, newline=""),
        float_precision="round_trip",
        keep_default_na=False,
        na_values=[""],
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_that_would_be_computed_is_text(text: str) -> None:
    sheet = Sheet("x", "X", ("name", text), ((text, -1.5),))
    row = read_csv(sheet.csv()).iloc[0]
    guarded = row["name"]
    assert guarded == ("'" + text if text[0] in "=+-@\t\r\n\uff1d" else text)
    assert row.iloc[1] == -1.5, "a negative number stays a number"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_come_back_to_the_last_bit(numbers: list[float]) -> None:
    sheet = Sheet("x", "X", ("n",), tuple((number,) for number in numbers))
    assert read_csv(sheet.csv())["n"].astype(float).tolist() == numbers


@given(st.lists(st.text(), unique=True, max_size=30))
def test_other_names_have_other_files_and_none_leads_out_of_the_folder(names: list[str]) -> None:
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    for file in files:
        assert file
        assert set(file) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"
        )
        assert not file.startswith(("-", "."))
        assert len(file) < 120


@pytest.fixture(scope="module")
def sheet_rows() -> list[SummaryRow]:
    def spoil(one: dict[str, object]) -> dict[str, object]:
        if (one["task"], one["policy"], one["ratio"], one["example_index"]) == (
            "hops",
            "knorm",
            0.9,
            0,
        ):
            return failing(one, HOSTILE[0])
        return one

    return summarise(
        realistic_records(policies=["full", "random", "snapkv", "knorm"], contexts=5, change=spoil)
    )


def test_the_cells_are_the_rows_unrounded_with_intervals_counts_and_reasons(
    sheet_rows: list[SummaryRow],
) -> None:
    sheet = cells_sheet(sheet_rows)
    table = read_csv(sheet.csv())
    assert len(table) == len(sheet_rows)
    for name in (
        "f1",
        "f1_low",
        "f1_high",
        "hallucination_rate",
        "ger",
        "realised_ratio",
        "kv_bytes",
        "n",
        "contexts",
    ):
        expected = [getattr(row, name) for row in sheet_rows]
        assert [None if pd.isna(value) else value for value in table[name]] == expected, name
    blank = table[~table["complete"].astype(bool)]
    assert list(blank["task"]) == ["hops", "all"]
    assert blank["f1"].isna().all()
    assert blank["reason"].str.contains("HYPERLINK").all()


def test_the_board_holds_every_number_with_its_interval_or_its_reason() -> None:
    records = realistic_records(policies=["full", "random", "snapkv", "knorm"], contexts=6)
    rows = summarise(records)
    found = all_standings(records, rows)
    table = read_csv(board_sheet(found, make_boards(records, rows, found)).csv())
    assert list(table["policy"]) == [one.policy for own in found.values() for one in own]
    for name in ("rank", "area"):
        assert (table[name].isna() == table[f"{name}_reason"].notna()).all(), name
    is_safe = table["safe_ratio_outcome"] == "safe"
    assert (table["safe_ratio"].notna() == is_safe).all(), (
        "a number stands beside safe alone, as on the page"
    )
    assert (table["safe_ratio_outcome"].isna() == table["safe_ratio_reason"].notna()).all()
    assert set(table.loc[~is_safe, "safe_ratio_outcome"].dropna()) <= {"unsafe", "open"}
    for name in ("area", "rank", "beats_random_difference"):
        known = table[table[name].notna() & table[f"{name}_low"].notna()]
        assert len(known)
        assert (known[f"{name}_low"] <= known[name]).all()
        assert (known[name] <= known[f"{name}_high"]).all()
    beaten = table[table["beats_random_verdict"].notna()]
    assert set(beaten["policy"]) == {"snapkv", "knorm"}
    assert beaten["beats_random_p"].dropna().between(0, 1).all()
    assert table[table["policy"] == "random"]["beats_random_reason"].notna().all()
    assert table["beats_recency_reason"].notna().all(), "recency was not run"


def test_records_come_back_in_the_types_of_the_schema(tmp_path: Path) -> None:
    record = dict.fromkeys(JOINED)
    text = {
        "task": "base",
        "reason": HOSTILE[0],
        "golds": ["a"],
        "token_kept": b"\x00\xff",
        "f1": 0.1,
        "ratio": 0.5,
    }
    frame = pd.DataFrame([{**record, **text}, {**record, "task": "hops", "golds": []}])
    assert write_records(tmp_path, [({"model": name}, frame) for name in ("one", "two")]) == 4
    table = pq.read_table(tmp_path / "data" / RECORDS_FILE)
    assert table.column_names == ["model", *JOINED]
    assert table["model"].to_pylist() == ["one", "one", "two", "two"]
    assert table["golds"].to_pylist()[0] == ["a"]
    assert (table["f1"].to_pylist()[0], table["token_kept"].to_pylist()[0]) == (0.1, b"\x00\xff")
    assert table["f1"].to_pylist()[1] is None
    assert not math.isnan(table["ratio"].to_pylist()[0])
    assert table.schema.metadata[b"kvbench_schema_version"] == str(SCHEMA_VERSION).encode()
