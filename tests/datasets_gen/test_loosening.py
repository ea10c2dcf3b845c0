"""Sentences of no template: what they mean is still said, and nothing of it is what a test asks."""

import gc
import random
import re

import pytest

from datasets_gen.examples.wording import Phrasings, Wording, loosened, taught_phrasings, words_of

TAUGHT = taught_phrasings()
MEANINGS = {one.common[0]: one for one in gc.get_objects() if type(one) is Phrasings}
SLOT = re.compile(r"\{\w+\}")
DRAWS = 40


def drawn(meaning: Phrasings) -> list[str]:
    rng, templates = random.Random(7), (*meaning.common, *meaning.taught)
    return [loosened(rng, templates, meaning.held_out) for _ in range(DRAWS)]


@pytest.mark.parametrize("first", TAUGHT)
def test_slots_stay_as_one_of_the_phrasings_has_them_and_none_is_held_out(first: str) -> None:
    meaning = MEANINGS[first]
    templates = (*meaning.common, *meaning.taught)
    orders = {tuple(SLOT.findall(one)) for one in templates}
    for sentence in drawn(meaning):
        assert tuple(SLOT.findall(sentence)) in orders
        assert sentence not in meaning.held_out
        assert sentence[-1] in ".?" or not all(one[-1] in ".?" for one in templates)


def test_what_a_person_is_asked_for_is_still_said() -> None:
    """No question loses the last word that no other meaning has: 'Where does she live?' may lose 'live', not both."""
    for first in ("Who is the lawyer of {subject}?", "Whose teacher is {value}?", "The coach of {subject} is {value}."):
        (bond,) = words_of(first) & {"lawyer", "teacher", "coach"}
        assert all(bond in words_of(sentence) for sentence in drawn(MEANINGS[first]))
    for first in ("Which creature did {subject} keep first?", "Which creature did {subject} keep last?"):
        order = {"first", "earliest"} if "first" in first else {"last", "latest", "recently"}
        assert all(order & words_of(sentence) for sentence in drawn(MEANINGS[first]))


def test_a_pronoun_finds_its_place() -> None:
    """A person stands where one of the templates has him: nothing is put between 'of' and his name."""
    sentences = [one for first in TAUGHT if "{value}." in first for one in drawn(MEANINGS[first])]
    assert any(" of {subject}" in one for one in sentences)
    assert not [one for one in sentences if one.startswith(" ") or "  " in one]
    bound = [one for one in sentences if re.search(r"\b[Tt]he \w+ of (?!\{)\w+ \{subject\}", one)]
    assert not bound


def test_most_are_new_and_the_same_seed_gives_the_same() -> None:
    meaning = MEANINGS["Where does {subject} live?"]
    known = {*meaning.common, *meaning.taught}
    sentences = drawn(meaning)
    assert sum(one not in known for one in sentences) > DRAWS / 2
    assert len(set(sentences)) > DRAWS / 2
    assert sentences == drawn(meaning)


def test_only_training_from_the_second_level_on_is_loosened(monkeypatch: pytest.MonkeyPatch) -> None:
    meaning, rng = MEANINGS["Where does {subject} live?"], random.Random(0)
    known = {*meaning.common, *meaning.taught, *meaning.held_out}
    for wording in (Wording(3), Wording(3, held_out=True), Wording(1, taught=True)):
        assert {wording.choose(rng, meaning) for _ in range(200)} <= known
    assert {Wording(3, taught=True).choose(rng, meaning) for _ in range(200)} - known
    monkeypatch.setattr("datasets_gen.examples.wording.CHANGED_SHARE", 0.0)
    monkeypatch.setattr("datasets_gen.examples.wording.MIXED_SHARE", 0.0)
    assert {Wording(3, taught=True).choose(rng, meaning) for _ in range(200)} <= known
