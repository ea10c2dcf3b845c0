"""Task `arithmetic`: every story has one outcome, and the steps written for it are right."""

import re

import pytest

from datasets_gen import Example, Question
from datasets_gen.tasks.arithmetic import ARITHMETIC, SIZES
from tests.support.tasks.solvers.arithmetic import event
from tests.support.tasks.suite import asked, texts
from tests.support.tasks.suite import some as some_of

TOP = ARITHMETIC.top_level
SIGNS = {"gain": "+", "loss": "-", "gift": "-", "packs": "+", "times": "*"}
every_level = pytest.mark.parametrize("level", range(TOP + 1))


def some(count: int, level: int = TOP) -> tuple[Example, ...]:
    """Examples with both of their questions, where there are two."""
    return some_of(ARITHMETIC, count, level=level, questions=2)


def equations(question: Question) -> list[tuple[int, str, int, int]]:
    """(left, sign, right, result) of each step of the target."""
    assert question.target is not None
    steps = re.findall(r"(\d+) ([+*-]) (\d+) = (\d+)\. ", question.target)
    written = "".join(f"{left} {sign} {right} = {result}. " for left, sign, right, result in steps)
    assert question.target == f"{written}#### {question.golds[0]}"
    return [(int(left), sign, int(right), int(result)) for left, sign, right, result in steps]


# --- the evidence


@every_level
def test_the_steps_are_right_and_lead_from_the_numbers_of_the_story_to_the_gold(level: int) -> None:
    fewest, most = SIZES[level].steps
    for example, question in asked(some(60, level)):
        steps = equations(question)
        assert fewest <= len(steps) <= most
        evidence = [event(sentence) for sentence in texts(example, question, "fact")]
        (name,) = set(texts(example, question, "subject"))
        has = int(evidence.pop(0).words["number"])
        for told in evidence:
            sign, number = SIGNS[told.kind], int(told.words["number"])
            if told.kind == "packs":
                size = int(told.words["size"])
                assert steps.pop(0) == (number, "*", size, number * size)
                number *= size
            elif told.kind == "gift" and told.words["other"] == name:
                sign = "+"
            result = {"+": has + number, "-": has - number, "*": has * number}[sign]
            assert steps.pop(0) == (has, sign, number, result)
            has = result
        assert not steps
        assert question.golds == (str(has),)


# --- the questions


# --- the output
