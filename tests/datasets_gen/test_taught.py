"""The phrasings that training shows beside those of the tests."""

import gc
import re
from string import Formatter

import pytest

from datasets_gen import TASKS
from datasets_gen.examples.wording import Phrasings, taught_phrasings

TAUGHT = taught_phrasings()
MEANINGS = [one for one in gc.get_objects() if type(one) is Phrasings]  # of all that the tasks are made of
COMMON = {phrasing for meaning in MEANINGS for phrasing in meaning.common}
# Compiled once: they are more than the module ``re`` remembers.
TAUGHT_ALONE = [
    re.compile(re.sub(r"\\\{\w+\\\}", r"\\w+ \\w+", re.escape(one)))
    for phrasings in TAUGHT.values()
    for one in phrasings
    if one not in COMMON
]
HELD_OUT = {phrasing for meaning in MEANINGS for phrasing in meaning.held_out}


def slots(template: str) -> list[str]:
    return sorted(slot for _, slot, _, _ in Formatter().parse(template) if slot)


def test_every_meaning_is_taught_in_about_a_dozen_phrasings_where_it_has_many_forms() -> None:
    assert {meaning.common[0] for meaning in MEANINGS} == TAUGHT.keys()
    assert sum(map(len, TAUGHT.values())) / len(TAUGHT) > 6


def test_none_is_held_out_or_said_in_tests_already() -> None:
    taught = [phrasing for phrasings in TAUGHT.values() for phrasing in phrasings]
    assert not HELD_OUT & set(taught)
    for meaning in MEANINGS:
        assert not set(meaning.common) & set(meaning.taught)
        assert len(set(meaning.taught)) == len(meaning.taught)


def test_they_say_as_much() -> None:
    for first, phrasings in TAUGHT.items():
        for phrasing in phrasings:
            assert slots(phrasing) == slots(first), phrasing


@pytest.mark.parametrize("name", TASKS)
def test_only_training_sees_them(name: str) -> None:
    task = TASKS[name]

    def seen(held_out: bool = False, taught: bool = False) -> int:
        """How many questions are in a phrasing that is taught."""
        examples = [task.example(1, index, "train", held_out=held_out, taught=taught) for index in range(15)]
        texts = [question.text for example in examples for question in example.questions]
        return sum(any(pattern.fullmatch(text) for pattern in patterns) for text in texts)

    other = [phrasing for phrasings in TAUGHT.values() for phrasing in phrasings if phrasing not in COMMON | HELD_OUT]
    patterns = [re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(one))) for one in other]
    patterns = [one for one in patterns if not any(one.fullmatch(known) for known in COMMON | HELD_OUT)]
    assert seen(taught=True) > 5
    assert seen() == seen(held_out=True) == 0


@pytest.mark.parametrize("name", TASKS)
def test_the_lowest_level_has_one_phrasing(name: str) -> None:
    """Training begins with the one that every later text has too."""
    for index in range(20):
        for question in TASKS[name].example(1, index, "train", 0, taught=True).questions:
            assert question.answerable in (True, False)
            assert not any(pattern.fullmatch(question.text) for pattern in TAUGHT_ALONE)
