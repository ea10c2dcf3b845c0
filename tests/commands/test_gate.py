"""The gate of ``compare``: with which status it ends, and what programs read of it."""

import json
from pathlib import Path

import pytest

from kvbench.store.store import Store
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS
from kvbench.system.errors import GateError
from tests.support.models.runs import CommandLine
from tests.support.records.small_store import small_store
from tests.support.wording import assert_says

COPIES = 3  # of each of the three contexts: nine can give a verdict


def multiply(store: Store) -> None:
    """Writes each context of a store several times, under names of their own."""
    for table in (CONTEXTS, QUESTIONS, RECORDS):
        for path in store.files(table):
            rows = store.read(table, path).to_pylist()
            copies = [row | renamed(row, number) for number in range(COPIES) for row in rows]
            store.write_rows(table, path, [table.row.model_validate(row) for row in copies])


def renamed(row: dict[str, object], number: int) -> dict[str, object]:
    names = {
        name: f"{row[name]}#{number}"
        for name in ("example_id", "question_id", "draw_id")
        if name in row
    }
    index = row.get("example_index")
    return names | ({"example_index": index + 3 * number} if isinstance(index, int) else {})


@pytest.fixture
def gated_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The committed run, with nine contexts of each task; knorm has 22 % right at ratio 0.5 of the
    full cache's 88."""
    monkeypatch.chdir(tmp_path)
    store = small_store(Path("runs/today"))
    multiply(store)
    return store


@pytest.mark.parametrize(
    ("gate", "status", "words"),
    [
        (["--max-loss", "5"], 3, "−74"),
        (["--max-loss", "90"], 0, ""),
        (["--fail-if", "worse"], 3, "the verdict is worse"),
        (["--max-loss", "90", "--fail-if", "worse"], 3, "the verdict is worse"),
        (["--max-loss", "100"], 1, "--max-loss is a number of points from 0 to below 100"),
        (["--max-loss", "-1"], 1, "--max-loss is a number of points from 0 to below 100"),
        (["--fail-if", "better"], 1, "'better' is not"),
    ],
)
def test_each_way_to_end_has_its_status(
    cli: CommandLine, gated_run: Store, gate: list[str], status: int, words: str
) -> None:
    assert cli("compare", "runs/today", "--against", "full", *gate) == status, cli.err
    if status:
        last = cli.err.splitlines()[-1]
        assert last.startswith(
            "error: the gate fails: knorm −" if status == GateError.status else "error: "
        )
        assert words in last
    else:
        assert cli.out.startswith(
            "the gate passes: a loss of 90 is allowed; the lowest difference is knorm −74"
        )


def test_programs_read_the_sentence_the_verdicts_and_the_bytes_of_each_level(
    cli: CommandLine, gated_run: Store
) -> None:
    assert (
        cli("compare", "runs/today", "--against", "full", "--max-loss", "50", "--json")
        == GateError.status
    )
    read = json.loads(cli.out)
    assert read["verdict"] == "the gate fails"
    assert read["error"].startswith("the gate fails: knorm −74")
    rows = {(row["policy"], row["level"]): row for row in read["tables"]["gate"]}
    assert set(rows) == {(name, level) for name in ("snapkv", "knorm") for level in (0.5, 0.9)}
    half = rows["snapkv", 0.5]
    # 43.1 of 88.2 on the mean of both tasks.
    assert half["difference"] == pytest.approx(-45.1, abs=0.1)
    assert half["difference_low"] < -50 < half["difference"] < half["difference_high"] < 0
    assert (half["passes"], half["is_sure"], half["verdict"]) == (True, False, "worse")
    assert (half["policy_level"], half["other_level"]) == ("ratio 0.5", "no level")
    assert half["bytes_held"] == pytest.approx(49.8, abs=0.3)
    assert half["other_bytes_held"] == 100
    assert not rows["knorm", 0.9]["passes"]
    sentences = [row["sentence"] for row in read["tables"]["outcomes"]]
    assert any("worse than full at ratio 0.5, 0.9" in sentence for sentence in sentences)


def test_controls_that_nobody_named_are_no_gate(cli: CommandLine, gated_run: Store) -> None:
    """Of the run's own controls random has more right than SnapKV; only knorm is named, of which
    SnapKV has more."""
    assert cli("compare", "runs/today", "--against", "knorm", "--max-loss", "1", "--json") == 0, (
        cli.err
    )
    assert {row["other"] for row in json.loads(cli.out)["tables"]["gate"]} == {"knorm"}
    assert (
        cli("compare", "runs/today", "--against", "random", "--max-loss", "1") == GateError.status
    )


def test_a_gate_that_cannot_judge_is_an_error_and_no_pass(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small_store(Path("runs/few"))
    said = (
        cli.complaint
        if cli("compare", "runs/few", "--against", "full", "--fail-if", "worse") == 1
        else ""
    )
    assert_says(said, "--fail-if worse", "n = 6 (2 tasks x 3)")
    small = [
        "--model",
        cli.model,
        "--tasks",
        "base",
        "--ratios",
        "0.5",
        "--context-tokens",
        "native",
        "--limit",
    ]
    said = cli.error("compare", "knorm", "--against", "full", *small, "2", "--fail-if", "worse")
    assert_says(said, "could never fail", "2 of base", "--limit 6")
    assert "loading" not in cli.err, "it is said before anything runs"
    assert cli("compare", "knorm", "--against", "full", *small, "2", "--max-loss", "5") == 1
    assert "2 contexts of base" in cli.err
    assert "the gate cannot judge knorm against full" in cli.complaint
