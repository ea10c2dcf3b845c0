"""A tiny reader of generated contexts: it knows the phrasings and nothing of how an example was made."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from datasets_gen.relations import ATTRIBUTES, BONDS, Relation

NAME = r"[A-Z][a-z]+ [A-Z][a-z]+"
PHRASE = rf"(?:the [a-z]+ of )*{NAME}"
VALUES = {"person": NAME, "number": r"\d+", "date": r"\d+ [A-Z][a-z]+ \d+"}


@dataclass(frozen=True)
class Statement:
    """``relation(subject) = value``, as read in a sentence."""

    relation: str
    subject: str
    value: str


def matches(template: str, text: str, relation: Relation, subject: str) -> re.Match[str] | None:
    """``text`` read as ``template``, with ``subject`` the pattern of its subject."""
    value = VALUES.get(relation.value_kind, r"[A-Za-z][A-Za-z' -]*")
    pattern = re.escape(template).replace(r"\{subject\}", f"(?P<subject>{subject})")
    return re.fullmatch(pattern.replace(r"\{value\}", f"(?P<value>{value})"), text)


def sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in re.findall(r"[^.]+\.", text)]


def statement(sentence: str) -> Statement:
    """What a sentence states; it must be readable in one way only."""
    readings = [
        Statement(relation.name, found["subject"], found["value"])
        for relation in (*ATTRIBUTES, *BONDS)
        for template in relation.statements
        if (found := matches(template, sentence, relation, NAME))
    ]
    assert len(readings) == 1, f"{sentence!r} reads as {readings}"
    return readings[0]


def read(text: str) -> list[Statement]:
    return [statement(sentence) for sentence in sentences(text)]


def resolve(phrase: str, known: list[Statement]) -> set[str]:
    """Whom "the teacher of the mentor of X" may mean."""
    nested = re.fullmatch(rf"the ([a-z]+) of ({PHRASE})", phrase)
    if nested is None:
        return {phrase}
    subjects = resolve(nested[2], known)
    return {said.value for said in known if said.relation == nested[1] and said.subject in subjects}


def readings(question: str, known: list[Statement]) -> Iterator[set[str]]:
    """The answers to each way in which the question can be read."""
    for relation in (*ATTRIBUTES, *BONDS):
        for template in relation.forward:
            if found := matches(template, question, relation, PHRASE):
                subjects = resolve(found["subject"], known)
                yield {said.value for said in known if said.relation == relation.name and said.subject in subjects}
        for template in relation.reverse:
            if found := matches(template, question, relation, PHRASE):
                yield with_value(relation, found["value"], known)
    for relation in ATTRIBUTES:
        for bond in BONDS:
            if found := matches(f"Whose {bond.name} {relation.clause}?", question, relation, PHRASE):
                reached = with_value(relation, found["value"], known)
                yield {said.subject for said in known if said.relation == bond.name and said.value in reached}


def with_value(relation: Relation, value: str, known: list[Statement]) -> set[str]:
    return {said.subject for said in known if said.relation == relation.name and said.value == value}


def solve(question: str, known: list[Statement]) -> set[str]:
    """Every answer that the statements give; the question must be readable in one way only."""
    answers = list(readings(question, known))
    assert len(answers) == 1, f"{question!r} reads in {len(answers)} ways"
    return answers[0]
