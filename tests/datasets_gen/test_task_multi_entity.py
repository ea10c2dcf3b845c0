"""The contract of task ``multi_entity``."""

import random

import pytest

from datasets_gen.examples.example import Split
from datasets_gen.examples.lexicon import name_split
from datasets_gen.tasks.multi_entity import MULTI_ENTITY, STEM, alike, draw_lookalike, draw_namesakes
from tests.support.tasks.solvers.relations import read, read_question
from tests.support.tasks.suite import ANSWER_TYPES, asked, some

every_level = pytest.mark.parametrize("level", range(MULTI_ENTITY.top_level + 1))
every_split = pytest.mark.parametrize("split", ["train", "test"])


@every_split
@every_level
def test_people_are_near_identical_and_share_no_word(split: Split, level: int) -> None:
    for example in some(MULTI_ENTITY, 20, split, level):
        people = sorted({said.subject for said in read(example.context)})
        words = [word for name in people for word in name.split()]
        assert len(set(words)) == len(words)
        assert len({name.split()[1][:STEM] for name in people}) == 1
        assert {name_split(name) for name in people} == {split}
        for name in people:
            others = [other for other in people if other != name]
            assert not others or any(alike(name.split()[0], other.split()[0]) for other in others)


@every_split
def test_a_stranger_is_like_somebody_and_nobody_of_the_people(split: Split) -> None:
    rng = random.Random(0)
    for count in (1, 2, 3, 4, 5) * 40:
        people = draw_namesakes(rng, split, count)
        stranger = draw_lookalike(rng, split, people)
        assert stranger not in people
        assert stranger[1][:STEM] == people[0][1][:STEM]
        assert name_split(" ".join(stranger)) == split


def test_nobody_lacks_all_attributes_and_one_person_at_most_lacks_each() -> None:
    lacked = 0
    for example in some(MULTI_ENTITY, 60):
        said = read(example.context)
        for relation in {reading.relation for reading in said}:
            subjects, values = zip(*[(s.subject, s.value) for s in said if s.relation == relation], strict=True)
            assert len(set(subjects)) == len(subjects)
            words = [word for value in values for word in value.split()]
            assert len(set(words)) == len(words)
            if relation not in ("mentor", "tutor", "coach", "teacher", "lawyer"):
                everybody = {reading.subject for reading in said}
                lacked += len(everybody - set(subjects))
                assert len(everybody - set(subjects)) <= 1
    assert lacked > 20


def test_an_attribute_that_nobody_has_is_not_asked_for() -> None:
    """Or the relation alone would tell that there is no answer."""
    for example, question in asked(some(MULTI_ENTITY, 300)):
        assert read_question(question.text)[0].relation in {said.relation for said in read(example.context)}


def test_every_kind_of_question_is_asked() -> None:
    questions = [question for _, question in asked(some(MULTI_ENTITY, 200))]
    answered = [question for question in questions if question.answerable]
    assert {question.direction for question in answered} == {"forward", "reverse"}
    assert {question.direction for question in questions if not question.answerable} == {"forward", "reverse"}
    assert {question.hops for question in answered} == {1, 2}
    assert {question.answer_type for question in answered} == ANSWER_TYPES
    assert 0.05 < 1 - len(answered) / len(questions) < 0.25
