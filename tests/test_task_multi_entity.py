"""The contract of task ``multi_entity``."""

import random

import pytest

from datasets_gen.example import Split
from datasets_gen.lexicon import name_split
from datasets_gen.multi_entity import MULTI_ENTITY, STEM, alike, draw_namesakes, draw_stranger
from solvers.relations import read
from suite import some

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
def test_thousands_of_different_sets_of_people(split: Split) -> None:
    rng = random.Random(0)
    for count in (4, 5):
        assert len({frozenset(draw_namesakes(rng, split, count)) for _ in range(2500)}) > 2000


@every_split
def test_a_stranger_is_like_somebody_and_nobody_of_the_people(split: Split) -> None:
    rng = random.Random(0)
    for count in (1, 2, 3, 4, 5) * 40:
        people = draw_namesakes(rng, split, count)
        stranger = draw_stranger(rng, split, people)
        assert stranger not in people
        assert stranger[1][:STEM] == people[0][1][:STEM]
        assert name_split(" ".join(stranger)) == split


def test_all_have_the_same_attributes_and_no_bond_twice() -> None:
    for example in some(MULTI_ENTITY, 60):
        said = read(example.context)
        for relation in {reading.relation for reading in said}:
            subjects, values = zip(*[(s.subject, s.value) for s in said if s.relation == relation], strict=True)
            assert len(set(subjects)) == len(subjects)
            words = [word for value in values for word in value.split()]
            assert len(set(words)) == len(words)
            if relation not in ("mentor", "tutor", "coach", "teacher", "lawyer"):
                assert set(subjects) == {reading.subject for reading in said}


def test_stated_values_are_all_names_and_values_in_order() -> None:
    for example in some(MULTI_ENTITY, 60):
        stated = {name for said in read(example.context) for name in (said.subject, said.value)}
        assert set(example.stated_values) == stated
        assert len(example.stated_values) == len(stated)


def test_every_kind_of_question_is_asked() -> None:
    asked = [question for example in some(MULTI_ENTITY, 200) for question in example.questions]
    answered = [question for question in asked if question.answerable]
    assert {question.direction for question in answered} == {"forward", "reverse"}
    assert {question.direction for question in asked if not question.answerable} == {"forward", "reverse"}
    assert {question.hops for question in answered} == {1, 2}
    types = {"person", "thing", "organisation", "creature", "location", "numeral", "date", "event"}
    assert {question.answer_type for question in answered} == types
    assert 0.05 < 1 - len(answered) / len(asked) < 0.25


# --- who guesses
