"""Task ``knowledge``: every question has the one answer that a reader of its text finds."""

import re

import pytest

from datasets_gen import ABSTENTION
from datasets_gen.tasks.knowledge import KNOWLEDGE
from leaderboards.metrics.judges.text import token_f1
from tests.support.tasks.solvers.knowledge import initials, read
from tests.support.tasks.suite import asked, every_way, texts

every_level = pytest.mark.parametrize("level", range(KNOWLEDGE.top_level + 1))


# --- the answers


@every_level
def test_what_is_no_standard_answer_is_worked_out_of_the_answer_spans(level: int) -> None:
    for example, question in asked(every_way(KNOWLEDGE, level=level)):
        if question.type == "standard" or not question.answerable:
            continue
        found, gold = texts(example, question, "answer"), question.golds[0]
        if question.answer_type == "numeral":
            assert gold == str(len(found))
        elif question.type == "part":
            assert found == re.split(", | and ", gold)
        elif question.answer_type == "date":
            assert re.fullmatch(rf"\d+ [A-Z][a-z]+ {gold[:3]}\d", found[0])
        elif question.hops == 2:
            dates = {person: date for _, person, date in read(example.context) if date in found}
            assert min(dates, key=lambda person: int(dates[person][-4:])) == gold
        else:
            assert [gold in initials(name) for name in found] == [True]


def test_initials_hold_no_article_and_no_word_of_an_abstention() -> None:
    """F1 drops an A, so that the other letter alone would be right; and an I stands in "I don't
    know"."""
    golds = [
        q.golds[0]
        for _, q in asked(every_way(KNOWLEDGE, 25))
        if "initials" in q.text and q.answerable
    ]
    assert golds
    assert all(re.fullmatch("[B-HJ-Z] [B-HJ-Z]", gold) for gold in golds)
    assert all(token_f1(ABSTENTION, gold) == 0 for gold in golds)


# --- the examples
