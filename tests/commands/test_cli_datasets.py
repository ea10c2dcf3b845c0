"""Tasks on the command line, without a model: exported as datasets, and shown in colour."""

import re
from pathlib import Path

import pandas as pd
import pytest
from datasets import load_dataset

from datasets_gen import RULER, TASKS, Task
from datasets_gen.export import question_rows
from kvbench.cli.program import main
from tests.support.models.runs import CommandLine

SHOWN = [*TASKS.values(), RULER["niah_multivalue"], RULER["fwe"]]


@pytest.mark.parametrize("task", SHOWN, ids=lambda task: task.name)
def test_an_exported_task_has_its_rows_and_spans(task: Task, tmp_path: Path) -> None:
    options = [
        "--limit",
        "2",
        "--seed",
        "4",
        "--split",
        "train",
        "--phrasings",
        "held-out",
        "--out",
        str(tmp_path),
    ]
    assert main(["export", "--task", task.name, *options]) == 0
    exported = pd.read_parquet(tmp_path / "data" / "train.parquet")
    rows = [
        row
        for example in task.generate(4, 2, "train", held_out=True)
        for row in question_rows(task, example)
    ]
    assert list(exported.question_id) == [row["question_id"] for row in rows]
    assert list(exported.context) == [row["context"] for row in rows]
    assert [[{**span} for span in spans] for spans in exported.spans] == [
        row["spans"] for row in rows
    ]
    card = (tmp_path / "README.md").read_text()
    for said in (
        task.full_version,
        "--seed 4 --split train --phrasings held-out",
        f"{task.chance:.1f} % right",
    ):
        assert said in card


@pytest.mark.parametrize(
    ("name", "phrasings"), [("knowledge", "common"), ("instructions", "held-out")]
)
def test_an_exported_folder_is_a_dataset_with_a_card(
    name: str, phrasings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TASKS[name]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    options = (
        f"--limit 2 --seed 4 --split train --phrasings {phrasings} --out {tmp_path / 'set'}".split()
    )
    assert main(["export", "--task", task.name, *options]) == 0
    loaded = load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    examples = task.generate(4, 2, "train", held_out=phrasings == "held-out")
    rows = [row for example in examples for row in question_rows(task, example)]
    assert list(loaded["train"]) == rows
    card = (tmp_path / "set" / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    command = re.search(r"python -m kvbench (export .*)", card)
    assert command
    assert main([*command[1].split(), "--out", str(tmp_path / "again")]) == 0
    written = [
        (tmp_path / name / "data" / "train.parquet").read_bytes() for name in ("set", "again")
    ]
    assert written[0] == written[1]


@pytest.mark.parametrize("name", ["README.md", "data/test.parquet"])
def test_export_replaces_nothing(cli: CommandLine, tmp_path: Path, name: str) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    said = cli.error("export", "--task", "base", "--limit", "2", "--out", tmp_path)
    assert "is there already: give another --out" in said
    assert mine.read_text() == "mine"
