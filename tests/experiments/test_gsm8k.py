"""Task ``gsm8k``: its rows, what is compressed, how answers are judged, and a run from end to
end."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from datasets import Dataset

import kvbench.experiments.data
from datasets_gen import DatasetError
from datasets_gen.tasks.gsm8k import GSM8K, INSTRUCTION, SHOTS, gsm8k_task, read_problems, read_rows
from datasets_gen.texts.final_number import final_number
from kvbench.store.store import Store
from leaderboards.metrics import Answer
from leaderboards.metrics.judges.text import marked_answer
from tests.support.models.runs import CommandLine

ROWS = Path(__file__).parents[1] / "data" / "gsm8k.jsonl"


def test_worked_problems_and_the_problem_are_the_context_and_the_problem_is_the_evidence() -> None:
    task = gsm8k_task(read_rows(ROWS))
    assert task.contexts == {"quick": 2, "paper": 2}
    example = task.example(0, 1)
    (question,) = example.questions
    assert example.context.startswith(f"{INSTRUCTION}\n\nQuestion: A baker has 12 rolls")
    assert example.context.count("\nAnswer: ") == SHOTS
    assert example.context.endswith(
        "\n\nQuestion: The temperature is 3 degrees and falls by 8. What is it then?"
    )
    (span,) = question.spans
    assert (
        example.context[span.start : span.end]
        == "The temperature is 3 degrees and falls by 8. What is it then?"
    )
    assert (question.text, question.golds) == ("", ("-5",))
    assert question.perfect_output == "3 - 8 = -5 degrees.\n#### -5"
    assert "-5" not in example.context
    with pytest.raises(DatasetError, match="a test split only"):
        task.example(0, 0, "train")


@pytest.mark.parametrize(
    ("output", "em"),
    [
        ("900 + 450 = 1350.\n#### 1350", 100.0),
        ("So there are\n#### 1,350 people", 100.0),
        ("#### $1350.00", 100.0),
        ("#### 1350\n\nQuestion: A cow has 4 legs. How many have 2?\nAnswer: #### 8", 100.0),
        ("900 + 450 = 1350.", 0.0),
        ("#### 13500", 0.0),
        ("#### -1350", 0.0),
        ("", 0.0),
    ],
)
def test_the_number_behind_the_marker_is_matched_exactly(output: str, em: float) -> None:
    question = gsm8k_task(read_rows(ROWS)).example(0, 0).questions[0]
    answer = Answer(
        output_text=output,
        question=question.text,
        golds=question.golds,
        target=question.perfect_output,
        answerable=True,
        abstentions=GSM8K.abstentions,
        stated_values=(),
        other_values=(),
        answer_marker=GSM8K.answer_marker,
        directives=(),
        protected="",
        defence="",
    )
    assert answer.scores is not None
    assert answer.scores.em == em


# What stands behind the marker, and the number that it is.
FINAL: Mapping[str, str] = {
    "18": "18",
    "= 13.": "13",
    "18 - 5 = 13": "13",
    "13 = 18 - 5": "13",
    "18 eggs - 5 eggs = 13 eggs": "13",
    "12 * 3 = 36 eggs in 2 days": "36",
    "x = 13": "13",
    "7 (since 8 - 1 = 9)": "7",
    "18 because 3 * 4 = 12": "18",
    "18 dollars for 3 eggs": "18",
    "3/4": "0.75",
    "3 1/2": "3.5",
    "3 ½": "3.5",
    "½": "0.5",
    "2/3": "0.6666666667",
    "1e3": "1000",
    "1.5E-1": "0.15",
    ".5": "0.5",
    "-.5": "-0.5",
    "−5": "-5",
    "–5": "-5",
    "- 5": "-5",
    "-$5": "-5",
    "$-5": "-5",
    r"\$18": "18",
    "$18.00": "18",
    r"$\boxed{18}$": "18",
    r"\frac{3}{4}": "0.75",
    "**18**": "18",
    "18%": "18",
    "1,000.00": "1000",
    "1,234,567": "1234567",
    "12 000": "12000",
    "0": "0",
    "about 18": "",
    "eighteen": "",
    "": "",
}


@pytest.mark.parametrize(("stated", "number"), FINAL.items())
def test_the_final_number_of_an_answer_is_read_in_the_forms_that_people_write(
    stated: str, number: str
) -> None:
    assert final_number(stated) == number
    assert marked_answer(f"8 - 1 = 7\n#### {stated}\nIt is 99.", "####") == number


@pytest.mark.parametrize(
    ("answer", "number"),
    [("3 of 4.\n#### 3/4", "0.75"), ("#### $18", "18"), ("#### 10.50", "10.50")],
)
def test_rows_may_end_in_the_same_forms(answer: str, number: str) -> None:
    rows = read_problems(
        [("line 1", {"question": "How many?", "answer": answer})] * (SHOTS + 1), "a file"
    )
    assert {row.number for row in rows} == {number}


def test_a_run_reads_the_rows_of_a_file(cli: CommandLine, tmp_path: Path) -> None:
    words = cli.words("--tasks", f"gsm8k(data={ROWS})", "--limit", "2", "--max-new-tokens", "8")
    assert cli(*words) == 0, cli.err
    frame = Store.open(tmp_path / "runs/x").frame()
    assert set(frame.status) == {"ok"}
    assert set(frame.target) == {row.solution for row in read_rows(ROWS)[SHOTS:]}
    assert frame.gold_nll.notna().all()
    assert frame.em.notna().all()


def test_rows_come_from_the_hub_where_no_file_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]

    def load(hub: str, split: str, name: str) -> Dataset:
        asked.append((hub, name, split))
        return Dataset.from_list(rows[:SHOTS] if split.startswith("train") else rows[SHOTS:])

    monkeypatch.setattr(kvbench.experiments.data, "fault_of_hub", lambda: "")
    monkeypatch.setattr("datasets.load_dataset", load)
    (task,) = kvbench.experiments.data.with_data([GSM8K], {})
    assert asked == [("openai/gsm8k", "main", "train[:4]"), ("openai/gsm8k", "main", "test")]
    assert task.example(0, 1).context == gsm8k_task(read_rows(ROWS)).example(0, 1).context
