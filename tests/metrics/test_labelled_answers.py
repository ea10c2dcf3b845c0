"""Answers in the styles of chat models, labelled by hand before the judge was written, against the
judge.

The labels say what a careful reader says by the definition of right: half a name, part of a date
and part of a list are not right. ``others`` are values of the gold's kind."""

import json
from pathlib import Path
from typing import Any

from leaderboards.metrics import Answer
from leaderboards.metrics.judges.text import TextScores

FILE = Path(__file__).parents[1] / "data" / "labelled_answers.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]
AGREEMENT = 0.99
# Where the judge and the reader differ, and why that stands. The labels say what a reader says.
DIFFERENT = {
    # Another value is named, though not as the answer.
    "Ada Falbrook is employed by Beacon Press; before that it may have been Amber Bank.": "wrong",
    "Ambrova.\n\nExplanation: The text says that the home of Ada Falbrook is in Ambrova, while "
    "Bruno Falden lives in "
    "Breveth.": "wrong",
    " Ambruna, while Lena Torberg lives in Breveth.": "wrong",
    # The text states no drums, and what it does not state is no rival.
    "cello, flute, harp and drums": "right",
    # A mark tells words apart, though many readers would let this one pass.
    "Zurich": "wrong",
    # The roles are turned round: the judge reads no meaning.
    "Ada Falbrook's mentor is Klaus Kerster.": "right",
}


def scores(row: dict[str, Any]) -> TextScores:
    """What the judge says. A derived gold, such as initials, stands in the context in no such
    words, nor do others. Of a user's own questions the reader of the file tells what else answers
    the like."""
    derived, is_own = row["derived"], row["style"].startswith("own")
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
        other_values=row["others"] if derived or is_own else [],
        answer_marker="",
        directives=[],
        protected="",
        defence="",
        every_gold=row.get("every_gold", False),
    ).scores
    assert found is not None
    return found


def verdict(found: TextScores) -> str:
    if found.abstained:
        return "abstained"
    return "wrong" if found.hallucinated else "right" if found.right else "empty"


def test_the_judge_says_what_a_reader_says_of_99_in_100_answers() -> None:
    found = {(row["question"], row["output"]): verdict(scores(row)) for row in ROWS}
    labels = {(row["question"], row["output"]): row["label"] for row in ROWS}
    different = {key[1]: verdict for key, verdict in found.items() if verdict != labels[key]}
    assert different == DIFFERENT
    assert len(different) <= (1 - AGREEMENT) * len(ROWS)


def test_every_answer_is_one_thing() -> None:
    """Empty, abstained, or answered; and what is answered is right or hallucinated."""
    for row in ROWS:
        found = scores(row)
        assert found.abstained + found.answered <= 1
        assert found.hallucinated == (found.answered and not found.right)
        assert (found.hallucination_kind is not None) == found.hallucinated
        if not row["answerable"]:
            assert found.right == found.abstained == (found.f1 == 100)
