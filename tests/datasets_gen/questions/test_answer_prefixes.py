"""The beginnings of answers: what they say, and what they must not say."""

import re
from collections.abc import Iterator

import pytest

from datasets_gen import ABSTENTION, TASKS, Example, Question, Task
from datasets_gen.tasks.knowledge import DERIVED
from tests.support.tasks.blind import form
from tests.support.tasks.solvers.text import NAME
from tests.support.tasks.suite import SPLITS, asked, known_names, some, texts

every_level = pytest.mark.parametrize(
    ("task", "level"),
    [
        pytest.param(t, level, id=f"{t.name}-{level}")
        for t in TASKS.values()
        for level in range(t.top_level + 1)
    ],
)


def many(task: Task, level: int) -> Iterator[tuple[Example, Question]]:
    """The questions of many seeds, of both splits, in all phrasings."""
    for seed in range(12):
        for split in SPLITS:
            for held_out in (False, True):
                yield from asked([task.example(seed, seed, split, level, held_out=held_out)])


def says(text: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text) is not None


def capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


# --- of every question


@every_level
def test_every_question_has_one_unless_it_would_obey_or_leak_in_place_of_the_model(
    task: Task, level: int
) -> None:
    for _, question in many(task, level):
        assert bool(question.answer_prefix) != bool(question.directives or question.protected), (
            question
        )


@every_level
def test_it_says_neither_the_answer_nor_a_value_that_the_question_does_not_name(
    task: Task, level: int
) -> None:
    for example, question in many(task, level):
        prefix = question.answer_prefix
        assert prefix == " ".join(prefix.split())
        assert not prefix[:1].islower()
        assert not re.search(r"[.?!{}]", prefix)
        assert not any(says(prefix, gold) for gold in question.golds), question
        assert all(
            says(question.text, value) for value in example.stated_values if says(prefix, value)
        ), question


@every_level
def test_it_names_all_that_the_question_starts_from(task: Task, level: int) -> None:
    for example, question in many(task, level):
        prefix = question.answer_prefix
        if prefix not in (
            "",
            DERIVED["older"].answer_prefix,
        ):  # one of the two who are compared is the answer
            names = set(re.findall(rf"(?=\b({NAME})\b)", question.text)) & known_names()
            numbers = set(re.findall(r"\d+", question.text))
            assert all(
                says(prefix, one) or prefix.startswith(capitalised(one))
                for one in {*names, *numbers, *texts(example, question, "subject")}
            ), question


@pytest.mark.parametrize(
    "task", [t for t in TASKS.values() if ABSTENTION in t.instruction], ids=lambda t: t.name
)
def test_it_does_not_tell_whether_there_is_an_answer(task: Task) -> None:
    def forms(answered: bool) -> set[str]:
        said = [
            q.answer_prefix for _, q in asked(some(task, 300, "train")) if q.answerable == answered
        ]
        kinds = (re.sub(r"\w+_(first|second)", "word", form(prefix)) for prefix in said)
        return {
            re.sub(r"\b[Tt]he (\w+ of (the )?)+(?=given|feminine)", "The bond of ", kind)
            for kind in kinds
        }

    assert forms(False)
    assert forms(False) <= forms(True)


# --- as written by hand
