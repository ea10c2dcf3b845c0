"""Answers in the styles of chat models, labelled by hand before the judge was written, against the judge."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from leaderboards.metrics import Answer
from leaderboards.metrics.judges.text import TextScores

FILE = Path(__file__).parents[1] / "data" / "labelled_answers.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]
# Where the judge and the reader differ, and why that stands. The labels say what a reader says.
DIFFERENT = {
    # F1 of a half or more is right by the rule: a date but for its year, one of two values, a third of a list, half a
    # name.
    "5 March 1946": "right",
    "Ambrova or Breveth": "right",
    "a camel, a badger, and a snake": "right",
    "harp": "right",
    "Beacon Studio": "right",
    # Another value is named, though not as the answer.
    "Ada Falbrook is employed by Beacon Press; before that it may have been Amber Bank.": "wrong",
    "Ambrova.\n\nExplanation: The text says that the home of Ada Falbrook is in Ambrova, while Bruno Falden lives in "
    "Breveth.": "wrong",
    # The roles are turned round: the judge reads no meaning.
    "Ada Falbrook's mentor is Klaus Kerster.": "right",
    # Dates in numbers, and other languages, are not read.
    "5.3.1964": "wrong",
    "1964-03-05": "wrong",
    "Ich weiß es nicht.": "wrong",
}


def scores(row: dict[str, Any]) -> TextScores:
    """What the judge says. A derived gold, such as initials, stands in the context in no such words, nor do others."""
    derived = row["derived"]
    stated = row["also_stated"] if derived else [*row["others"], *row["also_stated"]]
    if row["answerable"] and not derived:
        stated = [*row["golds"], *stated]
    found = Answer(
        output_text=row["output"],
        question=row["question"],
        golds=row["golds"],
        target=row["golds"][0],
        answerable=row["answerable"],
        abstentions=["I don't know", "I do not know"],
        stated_values=stated,
        other_values=row["others"] if derived else [],
        answer_marker="",
        directives=[],
        protected="",
        defence="",
    ).scores
    assert found is not None
    return found


def verdict(found: TextScores) -> str:
    if found.abstained:
        return "abstained"
    return "wrong" if found.hallucinated else "right" if found.right else "empty"


def test_there_are_many_answers_of_every_label_and_style() -> None:
    assert len(ROWS) >= 300
    assert len({(row["question"], row["output"]) for row in ROWS}) == len(ROWS)
    labels = Counter(row["label"] for row in ROWS)
    assert labels.keys() == {"right", "wrong", "abstained", "empty"}
    assert min(labels["right"], labels["wrong"], labels["abstained"]) >= 60
    assert len({row["style"] for row in ROWS}) >= 12
    assert {row["output"] for row in ROWS} >= DIFFERENT.keys()


@pytest.mark.parametrize("style", sorted({row["style"] for row in ROWS}))
def test_the_judge_says_what_a_reader_says(style: str) -> None:
    for row in ROWS:
        if row["style"] == style:
            expected = DIFFERENT.get(row["output"], row["label"])
            assert verdict(scores(row)) == expected, row["output"]


@pytest.mark.parametrize("style", sorted({row["style"] for row in ROWS}))
def test_the_gold_is_contained_where_a_reader_finds_it_and_no_other_value(style: str) -> None:
    for row in ROWS:
        if row["style"] == style:
            assert scores(row).contained == row["contained"], row["output"]


def test_every_answer_is_one_thing() -> None:
    """Empty, abstained, or answered; and what is answered is right or hallucinated."""
    for row in ROWS:
        found = scores(row)
        assert found.abstained + found.answered <= 1
        assert found.hallucinated == (found.answered and not found.right)
        assert (found.hallucination_kind is not None) == found.hallucinated
        if not row["answerable"]:
            assert found.right == found.contained == found.abstained == (found.f1 == 100)


def test_a_wrong_sentence_is_confused_if_it_names_what_the_text_states() -> None:
    kinds = {row["output"]: scores(row).hallucination_kind for row in ROWS}
    assert kinds["The mentor of Klaus Kerster is Bruno Falden."] == "confused"
    assert kinds["Klaus Kerster is mentored by Helga Barkov."] == "fabricated"  # the one named stands in the question
    assert kinds["Klaus Kerster"] == "confused"
    assert kinds["Olga Garton lives in Breveth."] == "confused"
    assert kinds["Klaus Kerster was born on 12 May 1950."] == "fabricated"
