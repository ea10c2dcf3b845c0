"""A reader of facts about people, in passages or in between prose, and of questions over any number
of them."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from datasets_gen.examples.wording import Phrasings
from datasets_gen.tasks.hops import WHOSE
from datasets_gen.writing.passage import ATTRIBUTES, BONDS
from tests.support.tasks.solvers.text import NAME, matches, names_someone, sentences, value_of

PHRASE = rf"(?:the [a-z]+ of )*{NAME}"


@dataclass(frozen=True)
class Reading:
    """A text read as a phrasing of a relation; ``subject`` or ``value`` is empty where the text
    does not name it."""

    relation: str
    template: str
    subject: str
    value: str


def readings(
    text: str, part: Literal["statements", "forward", "reverse"], subject: str
) -> list[Reading]:
    """All ways to read a text, with the pattern of its subject."""
    found = []
    for relation in (*ATTRIBUTES, *BONDS):
        phrasings: Phrasings = getattr(relation, part)
        for template, words in matches(
            phrasings, text, subject=subject, value=value_of(relation.value_kind)
        ):
            found.append(
                Reading(relation.name, template, words.get("subject", ""), words.get("value", ""))
            )
    return found


@cache
def read_sentence(sentence: str) -> Reading:
    """What a sentence states; it must be readable in one way only."""
    (reading,) = readings(sentence, "statements", NAME)
    return reading


@cache
def read(context: str) -> tuple[Reading, ...]:
    """What is stated; prose that names no one is passed over."""
    return tuple(
        read_sentence(sentence) for sentence in sentences(context) if names_someone(sentence)
    )


@cache
def read_question(question: str) -> tuple[Reading, bool]:
    """A question about one relation, readable in one way only, and whether it is a reverse one."""
    forward, reverse = readings(question, "forward", PHRASE), readings(question, "reverse", PHRASE)
    (reading,) = forward + reverse
    return reading, bool(reverse)


@cache
def whose(question: str) -> tuple[str, str, str] | None:
    """Of "Whose mentor lives in Velden?" the bond, the relation and the value."""
    asked = [
        (bond.name, relation.name, words["value"])
        for bond in BONDS
        for relation in ATTRIBUTES
        for template in (*WHOSE.common, *WHOSE.held_out)
        for _, words in matches(
            Phrasings((template.format(bond=bond.name, clause=relation.clause),), ()),
            question,
            value=value_of(relation.value_kind),
        )
    ]
    assert len(asked) <= 1, f"{question!r} reads as {asked}"
    return asked[0] if asked else None


def resolve(phrase: str, stated: tuple[Reading, ...]) -> set[str]:
    """Whom "the teacher of the mentor of X" may mean."""
    nested = re.fullmatch(rf"the ([a-z]+) of ({PHRASE})", phrase)
    if nested is None:
        return {phrase}
    subjects = resolve(nested[2], stated)
    return {
        said.value for said in stated if said.relation == nested[1] and said.subject in subjects
    }


def subjects_of(relation: str, values: set[str], stated: tuple[Reading, ...]) -> set[str]:
    return {said.subject for said in stated if said.relation == relation and said.value in values}


def solve(question: str, context: str) -> set[str]:
    """Every answer that the context gives to the question."""
    stated = read(context)
    if over_bond := whose(question):
        bond, relation, value = over_bond
        return subjects_of(bond, subjects_of(relation, {value}, stated), stated)
    asked, reverse = read_question(question)
    if reverse:
        return subjects_of(asked.relation, {asked.value}, stated)
    subjects = resolve(asked.subject, stated)
    return {
        said.value
        for said in stated
        if said.relation == asked.relation and said.subject in subjects
    }
