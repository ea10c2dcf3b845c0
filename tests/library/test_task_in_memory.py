"""Tasks in memory: lists of rows and data sets in the form of one's own questions."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset, DatasetDict

import kvbench
from datasets_gen import TASKS
from kvbench.api.arguments import TasksInMemory
from tests.support.models.runs import SHORT, timeless

ROWS = [
    {
        "context": f"{name} lives in {city}. The river is long, and the hills are green.",
        "question": f"Where does {name} live?",
        "answers": [city],
    }
    for name, city in (("Ada", "Breveth"), ("Tamar", "Orlin"))
]


def run(toy_folder: Path, folder: Path, tasks: Any) -> kvbench.RunResult:
    return kvbench.run(
        toy_folder,
        tasks=tasks,
        policies="knorm",
        ratios=0.5,
        max_new_tokens=SHORT,
        out=folder / "runs",
        site=folder / "site",
        every_task=True,
    )


def test_rows_in_memory_are_asked_as_those_of_a_file(toy_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    of_file = run(toy_folder, tmp_path / "file", file)
    in_memory = run(toy_folder, tmp_path / "memory", ROWS)
    pd.testing.assert_frame_equal(
        timeless(in_memory.records()), timeless(of_file.records()), check_exact=True
    )
    # What a question needed is found again while the rows are in memory.
    assert len(in_memory.examples("knorm", worst=1)) == 1


def test_data_sets_and_lists_have_names() -> None:
    named = TasksInMemory()
    assert named.join_names([ROWS, Dataset.from_list(ROWS), "base", Path("mine.jsonl")]) == (
        "questions,questions_2,base,mine.jsonl"
    )
    first, second = named.tasks.values()
    assert first.example(0, 1).context == first.example(5, 1).context == ROWS[1]["context"]
    assert first.full_version == second.full_version
    (question,) = first.example(0, 0).questions
    assert question.golds == ("Breveth",)
    assert named.join_names("base,hops") == "base,hops"
    assert TasksInMemory().join_names(ROWS) == "questions"


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ([3], "an object of type int is no task"),
        ([DatasetDict()], "an object of type DatasetDict is no task"),
        ([[{"context": "x"}]], "questions, row 1"),
        ([TASKS["base"]], "two tasks are named 'base'"),
    ],
    # Functions of a task have another address in each process.
    ids=["number", "several data sets", "no question", "name of another"],
)
def test_what_is_no_task_is_said_in_one_sentence(tasks: Any, sentence: str) -> None:
    with pytest.raises(kvbench.KVBenchError, match=sentence):
        kvbench.run(tasks=tasks)
