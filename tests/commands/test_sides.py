"""The sides of ``compare``: policies of all families against each other, and runs that are
stored."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kvbench.models import precision
from kvbench.store.store import Store
from kvbench.store.tables import CONTEXTS, RECORDS
from tests.support.models.runs import CommandLine, record_calls
from tests.support.records.small_store import small_store
from tests.support.wording import assert_says, missing_parts

PRESS = """
from dataclasses import dataclass
from kvpress import ScorerPress

@dataclass
class Loud(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return values.norm(dim=-1)
"""
# By what is compared: the levels that are asked for, and of each cell the level of either.
RATIOS, BUDGETS, RATES = ["--ratios", "0.5,0.9"], ["--budgets", "16,32"], ["--rates", "0.1,0.5"]
OF_RATIOS = [("ratio 0.5", "no level"), ("ratio 0.9", "no level")]
PAIRS = {
    "a press against a quantisation": ("knorm", "int4", RATIOS, OF_RATIOS),
    "a quantisation against a press": ("int4", "knorm", RATIOS, [pair[::-1] for pair in OF_RATIOS]),
    "by budgets": (
        "knorm",
        "int4",
        BUDGETS,
        [("budget 16", "no level"), ("budget 32", "no level")],
    ),
    "a plug-in": ("press.py:Loud", "int8", RATIOS, OF_RATIOS),
    "a composite": ("knorm+int4", "int4", RATIOS, OF_RATIOS),
    "two quantisations": ("int4", "int8", [], [("no level", "no level")]),
    "the full cache": ("knorm", "full", RATIOS, OF_RATIOS),
    "a fault of one rate": (
        *("knorm", "zeros", [*RATIOS, "--rates", "0.1"]),
        [("ratio 0.5", "rate 0.1"), ("ratio 0.9", "rate 0.1")],
    ),
    "a fault against a press of one ratio": (
        *("zeros", "knorm", [*RATES, "--ratios", "0.5"]),
        [("rate 0.1", "ratio 0.5"), ("rate 0.5", "ratio 0.5")],
    ),
    "a fault against a quantisation": (
        "zeros",
        "int4",
        RATES,
        [("rate 0.1", "no level"), ("rate 0.5", "no level")],
    ),
}


def compare_command(cli: CommandLine, *more: object) -> list[object]:
    return [
        "compare",
        *more,
        *cli.places,
        "--site",
        cli.folder / "site" / "here",
        "--tasks",
        "base",
        "--limit",
        "2",
        "--context-tokens",
        "native",
    ]


# The same as those with sides and kinds changed about.
ALIKE = ("a quantisation against a press", "two quantisations", "a fault against a quantisation")


@pytest.mark.parametrize(
    ("one", "other", "levels", "cells"),
    [
        pytest.param(*pair, id=name, marks=pytest.mark.slow if name in ALIKE else ())
        for name, pair in PAIRS.items()
    ],
)
def test_what_has_one_level_is_compared_with_each_level_of_the_other(
    cli: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one: str,
    other: str,
    levels: list[str],
    cells: list[tuple[str, str]],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("press.py").write_text(PRESS)
    assert (
        cli(*compare_command(cli, one, "--against", other, *levels, "--every-task", "--json")) == 0
    ), cli.err
    read = json.loads(cli.out)["tables"]
    for table in ("verdicts", "means"):
        rows = [row for row in read[table] if row["other"] == other]
        assert sorted((row["policy_level"], row["other_level"]) for row in rows) == sorted(cells)
        assert all(
            0 < row[side] <= 130 for row in rows for side in ("bytes_held", "other_bytes_held")
        )
    assert all(row["contexts"] == 2 for row in read["verdicts"] if row["other"] == other)
    page = next((tmp_path / "site/here").glob("compare-*.html")).read_text()
    assert "KV bytes held" in page


def test_levels_of_two_kinds_are_refused_with_what_to_give(cli: CommandLine) -> None:
    said = cli.error(*compare_command(cli, "knorm", "--against", "int4,zeros", *RATIOS, *RATES))
    assert_says(said, "knorm takes ratios or budgets", "zeros takes rates")
    assert "as --rates 0.1" in said


Edit = Callable[[dict[str, Any]], bool]


def edit_records(store: Store, is_right: Edit) -> None:
    """Writes other answers into a stored run: those of ``knorm`` are right where the function says
    so."""
    for path in store.record_files():
        rows = store.read(RECORDS, path).to_pylist()
        for row in rows:
            if row["policy"] == "knorm":
                row |= {
                    "right": is_right(row),
                    "hallucinated": not is_right(row),
                    "abstained": False,
                }
        store.write_rows(RECORDS, path, [RECORDS.row.model_validate(row) for row in rows])


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, Store]:
    """Two runs of the same questions, of which knorm has nothing right today, and yesterday two of
    three contexts of each task at ratio 0.5 and one at 0.9."""
    monkeypatch.chdir(tmp_path)
    today, yesterday = small_store(Path("runs/today")), small_store(Path("runs/yesterday"))
    edit_records(today, lambda row: False)
    edit_records(
        yesterday,
        lambda row: int(row["question_id"].split("/")[3]) < (2 if row["level"] == 0.5 else 1),
    )
    return today, yesterday


def test_two_runs_are_paired_on_the_same_questions_and_nothing_is_run(
    cli: CommandLine, runs: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(monkeypatch)
    assert cli("compare", "runs/today", "--against", "runs/yesterday", "--json") == 0, cli.err
    assert calls == []
    read = json.loads(cli.out)
    assert {row["policy"]: row["other"] for row in read["tables"]["means"]} == {
        "full": "full of yesterday",
        "snapkv": "snapkv of yesterday",
        "knorm": "knorm of yesterday",
    }
    assert {row["difference"] for row in read["tables"]["means"] if row["policy"] != "knorm"} == {
        0.0
    }
    means = {row["level"]: row for row in read["tables"]["means"] if row["policy"] == "knorm"}
    # Contexts count alike, and so do tasks: of three contexts two, and one, are lost.
    assert means[0.5]["difference"] == pytest.approx(-200 / 3)
    assert means[0.9]["difference"] == pytest.approx(-100 / 3)
    assert [Path(page).name for page in read["files"]["page"]] == [
        f"compare-{name}.html" for name in ("full", "snapkv", "knorm")
    ]
    page = Path(read["files"]["page"][-1]).read_text()
    assert "this run, and of yesterday" in page
    assert "with the same prefill" not in page


def test_questions_whose_text_was_changed_are_not_paired(
    cli: CommandLine, runs: tuple[Store, Store]
) -> None:
    """The third context of base, which neither has right, is another one: two of two are lost
    there."""
    today, _ = runs
    for table in (today.folder / "contexts" / "base").glob("*.parquet"):
        change_text(today, table)
    assert cli("compare", "runs/today", "--against", "runs/yesterday", "--json") == 0, cli.err
    read = json.loads(cli.out)
    (row,) = (
        row
        for row in read["tables"]["verdicts"]
        if (row["policy"], row["task"], row["level"]) == ("knorm", "base", 0.5)
    )
    assert (row["contexts"], row["right_difference"]) == (2, pytest.approx(-100))
    assert any(
        not missing_parts(text, "6 questions", "runs/yesterday") for text in read["warnings"]
    )


def change_text(store: Store, path: Path) -> None:
    """Changes the last letter of the third context, which no span reaches."""
    rows = store.read(CONTEXTS, path).to_pylist()
    for row in rows:
        if row["example_index"] == 2:
            row["context"] = row["context"][:-1] + "!"
    store.write_rows(CONTEXTS, path, [CONTEXTS.row.model_validate(row) for row in rows])


def test_what_differs_between_the_runs_is_one_line(
    cli: CommandLine, runs: tuple[Store, Store]
) -> None:
    _, yesterday = runs
    identity = yesterday.identity
    policies = tuple(
        policy.model_copy(update={"origin": "0" * 16}) if policy.name == "knorm" else policy
        for policy in identity.policies
    )
    changed = identity.model_copy(update={"dtype": "bfloat16", "policies": policies})
    run = yesterday.run.model_copy(update={"identity": changed})
    (yesterday.folder / "run.json").write_text(run.model_dump_json())
    assert cli("compare", "runs/today", "--against", "runs/yesterday") == 0, cli.err
    (line,) = (line for line in cli.err.splitlines() if "the code of the policy knorm" in line)
    assert line.startswith("runs/yesterday was made in another way: its dtype is")


def test_of_one_run_each_policy_that_is_no_control_meets_those_that_are_named(
    cli: CommandLine, runs: tuple[Store, Store]
) -> None:
    assert cli("compare", "runs/today", "--against", "full,random", "--json") == 0, cli.err
    rows = json.loads(cli.out)["tables"]["means"]
    assert {(row["policy"], row["other"]) for row in rows} == {
        (one, other) for one in ("snapkv", "knorm") for other in ("full", "random")
    }


def test_a_press_of_today_is_asked_what_the_run_asked(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = [
        "--tasks",
        "base",
        "--limit",
        "2",
        "--context-tokens",
        "native",
        "--ratios",
        "0.5,0.9",
        "--seed",
        "3",
    ]
    places = ["--out", "runs", "--model", cli.model]
    assert cli("run", *asked, *places, "--policies", "knorm,snapkv", "--name", "yesterday") == 0
    shutil.move("runs/yesterday", "yesterday")  # or its answers would be taken for those of today
    # On another machine auto would be another type of numbers.
    monkeypatch.setattr(precision, "faster_dtype", lambda: torch.bfloat16)
    calls = record_calls(monkeypatch)
    assert (
        cli("compare", "knorm", "--against", "yesterday", "--out", "runs", "--every-task", "--json")
        == 0
    ), cli.err
    assert [(call.task, call.policies) for call in calls] == [("base", ("full", "knorm"))] * 2
    means = json.loads(cli.out)["tables"]["means"]
    assert [(row["other"], row["level"], row["difference"]) for row in means] == [
        ("knorm of yesterday", 0.5, 0.0),
        ("knorm of yesterday", 0.9, 0.0),
    ]
    (today,) = (Store.open(folder) for folder in Path("runs").iterdir())
    assert today.identity.dtype == "float32"
    assert_says(
        cli.error("compare", "tova", "--against", "yesterday"),
        "no answers of tova",
        "it has full",
    )
    said = cli.error("compare", "knorm", "--against", "yesterday", "--ratios", "0.3")
    assert_says(said, "knorm", "ratio 0.3", "--ratios 0.5,0.9")
    said = cli.error("compare", "knorm", "--against", "yesterday", "--tasks", "hops")
    assert "it asked base with seed 3" in said


def test_a_folder_that_is_missing_damaged_or_of_other_questions_is_one_line(
    cli: CommandLine, runs: tuple[Store, Store]
) -> None:
    today, _ = runs
    said = cli.error("compare", "runs/today", "--against", "runs/yestrday")
    assert_says(said, "runs/yestrday", "did you mean runs/yesterday?")
    assert "leave out --tasks" in cli.error(
        "compare", "runs/today", "--against", "full", "--tasks", "base"
    )
    assert "runs/today has no answers of tova" in cli.error(
        "compare", "runs/today", "--against", "tova"
    )
    for table in (today.folder / "contexts").glob("*/*.parquet"):
        rename_examples(today, table)
    said = cli.error("compare", "runs/today", "--against", "runs/yesterday")
    assert "runs/yesterday shares no question of base, hops" in said
    (Path("runs/yesterday") / "run.json").write_text("{")
    assert "run.json is damaged" in cli.error(
        "compare", "runs/today", "--against", "runs/yesterday"
    )
    next(Path("runs/today/records").glob("*/*/knorm.parquet")).write_bytes(b"PAR1")
    assert "cannot be read" in cli.error("compare", "runs/today", "--against", "full")


def rename_examples(store: Store, path: Path) -> None:
    rows = [
        {**row, "example_id": f"other/{row['example_id']}"}
        for row in store.read(CONTEXTS, path).to_pylist()
    ]
    store.write_rows(CONTEXTS, path, [CONTEXTS.row.model_validate(row) for row in rows])
