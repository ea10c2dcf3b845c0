"""Tasks on the command line, without a model: exported as datasets, and shown in colour."""

import io
import re
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
from datasets import load_dataset
from rich.console import Console

from datasets_gen import RULER, TASKS, Span, Task
from datasets_gen.export import rows_of
from kvbench.cli.program import main
from kvbench.publish.worst_answers import STYLES, Marked, colour_spans
from tests.support.models.runs import CommandLine

SHOWN = [*TASKS.values(), RULER["niah_multivalue"], RULER["fwe"]]
every_task = pytest.mark.parametrize("task", SHOWN, ids=lambda task: task.name)


def test_a_task_is_exported_with_its_spans(tmp_path: Path) -> None:
    assert main(["export", "--task", "hops", "--limit", "3", "--out", str(tmp_path)]) == 0
    frame = pd.read_parquet(tmp_path / "data" / "test.parquet")
    assert frame.example_id.nunique() == 3
    for row in frame[frame.answerable].itertuples():
        answers = [row.context[span["start"] : span["end"]] for span in row.spans if span["kind"] == "answer"]
        assert answers == list(row.golds)


@pytest.mark.parametrize(("name", "phrasings"), [("knowledge", "common"), ("instructions", "held-out")])
def test_an_exported_folder_is_a_dataset_with_a_card(
    name: str, phrasings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TASKS[name]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    options = f"--limit 2 --seed 4 --split train --phrasings {phrasings} --out {tmp_path / 'set'}".split()
    assert main(["export", "--task", task.name, *options]) == 0
    loaded = load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    rows = list(loaded["train"])
    examples = list(task.generate(4, 2, "train", phrasings == "held-out"))
    assert rows == [row for example in examples for row in rows_of(task, example)]
    card = (tmp_path / "set" / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    assert task.full_version in card
    assert f"{task.chance:.1f} % right" in card
    assert f"2 contexts with {len(rows)} questions, seed 4, {phrasings} phrasings" in card
    command = re.search(r"python -m kvbench (export .*)", card)
    assert command
    assert main([*command[1].split(), "--out", str(tmp_path / "again")]) == 0
    written = [(tmp_path / name / "data" / "train.parquet").read_bytes() for name in ("set", "again")]
    assert written[0] == written[1]


def test_a_second_split_joins_the_first_and_another_task_does_not(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = str(tmp_path / "set")
    for split in ("test", "train"):
        assert cli("export", "--task", "base", "--limit", "2", "--split", split, "--out", folder) == 0
    loaded = load_dataset(folder, cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in loaded.items()} == {"test": 12, "train": 12}
    card = (tmp_path / "set" / "README.md").read_text()
    assert re.findall(r"^## Split (\w+)$", card, re.MULTILINE) == ["test", "train"]
    for split in ("test", "train"):
        assert "holds base" in cli.error("export", "--task", "hops", "--limit", "2", "--split", split, "--out", folder)
    assert (tmp_path / "set" / "README.md").read_text() == card
    assert cli("export", "--task", "base", "--limit", "3", "--out", folder) == 0
    assert "replacing 12 questions (--seed 0 --limit 2" in cli.complaint


@pytest.mark.parametrize("name", ["README.md", "data/test.parquet"])
def test_what_export_did_not_write_it_does_not_replace(cli: CommandLine, tmp_path: Path, name: str) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    assert "was not written by export: give another --out" in cli.error(
        "export", "--task", "base", "--limit", "2", "--out", tmp_path
    )
    assert mine.read_text() == "mine"


def test_what_is_to_be_written_is_shown_where_it_is_not_the_gold(cli: CommandLine) -> None:
    question = TASKS["arithmetic"].example(0, 0).questions[0]
    assert cli("show", "arithmetic") == 0
    shown = cli.out
    assert "to be written" in shown
    assert f"#### {question.golds[0]}" in shown
    assert cli("show", "base") == 0
    assert "to be written" not in cli.out


@every_task
def test_an_example_is_shown_with_its_spans_and_questions(cli: CommandLine, task: Task) -> None:
    assert cli("show", task.name, "--index", "3") == 0
    shown = " ".join(cli.out.split())
    unmarked = re.sub(rf"\[(?:{'|'.join(STYLES)}) |\]", "", shown)
    example = task.example(0, 3)
    kinds = {span.kind for question in example.questions for span in question.spans} | {s.kind for s in example.spans}
    assert all(f" {kind} " in f" {shown} " for kind in kinds)
    assert example.context[:60] in unmarked
    assert all(f"[{kind} " in shown for kind in kinds)
    assert cli("show", task.name, "--index", "3", "--question", "0", "--phrasings", "held-out") == 0
    unmarked = re.sub(rf"\[(?:{'|'.join(STYLES)}) |\]", "", " ".join(cli.out.split()))
    assert task.example(0, 3, held_out=True).context[:60] in unmarked


def test_spans_are_coloured_and_the_narrower_kind_is_seen() -> None:
    example = TASKS["hops"].example(0, 3)
    question = next(question for question in example.questions if question.hops == 2)
    text = colour_spans(example.context, list(question.spans))
    (answer,) = (span for span in question.spans if span.kind == "answer")
    of_answer = [span.style for span in text.spans if (span.start, span.end) == (answer.start, answer.end)]
    assert text.plain == example.context
    assert of_answer[-1] == STYLES["answer"]
    assert text.spans[-1].style == STYLES["answer"]


def test_spans_are_bracketed_where_there_are_no_colours() -> None:
    text = colour_spans("Ada lives in Rome, not in Oslo.", [Span("fact", 0, 18), Span("answer", 13, 17)])
    marked = "[fact Ada lives in [answer Rome],] not in Oslo.\n"

    def written(colours: bool, forbidden: bool = False) -> str:
        system: Literal["256"] | None = "256" if colours else None
        file = io.StringIO()
        console = Console(file=file, width=80, color_system=system, force_terminal=colours, no_color=forbidden)
        console.print(Marked(text))
        return file.getvalue()

    assert written(colours=False) == marked
    assert "[fact" in written(colours=True, forbidden=True)
    assert "[fact" not in written(colours=True)
    assert "\x1b[" in written(colours=True)
