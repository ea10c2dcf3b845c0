"""A reader of the biographies of task ``knowledge``: it knows the phrasings and nothing of how an
example was made."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import permutations

from datasets_gen.examples.wording import Phrasings
from datasets_gen.tasks.knowledge import DERIVED, PLAYS, SLOTS
from tests.support.tasks.solvers.text import NAME, matches, sentences, value_of

RELATIONS = (*SLOTS, PLAYS)
WORDS = {1: "one", 2: "two", 3: "three"}

Known = tuple[tuple[str, str, str], ...]  # relation, subject and value


def words_of(phrasings: Phrasings, text: str, kind: str = "") -> Iterator[dict[str, str]]:
    """What a text says, read as each of the phrasings; ``kind`` is that of the value."""
    for _, words in matches(
        phrasings, text, subject=NAME, first=NAME, second=NAME, value=value_of(kind)
    ):
        yield words


@cache
def read(context: str) -> Known:
    """What the sentences state; each must be readable in one way only."""
    known = []
    for sentence in sentences(context):
        readings = [
            (relation.name, found["subject"], found["value"])
            for relation in RELATIONS
            for found in words_of(relation.statements, sentence, relation.value_kind)
        ]
        assert len(readings) == 1, f"{sentence!r} reads as {readings}"
        known += readings
    return tuple(known)


def values(known: Known, relation: str, subject: str) -> list[str]:
    return [value for name, person, value in known if (name, person) == (relation, subject)]


def subjects(known: Known, relation: str, value: str) -> list[str]:
    return [person for name, person, of_person in known if (name, of_person) == (relation, value)]


def initials(name: str) -> set[str]:
    """Apart and together."""
    letters = re.findall("[A-Z]", name)
    return {" ".join(letters), "".join(letters)}


def count(things: list[str]) -> set[str]:
    return {str(len(things)), WORDS[len(things)]} if things else set()


def orders(things: list[str]) -> set[str]:
    """Every way to list them."""
    return {re.sub(r", (?=\w+$)", " and ", ", ".join(order)) for order in permutations(things)} - {
        ""
    }


def older(known: Known, *people: str) -> set[str]:
    """Known only when both birthdays are."""
    years = {
        person: int(born[-4:]) for person in people for born in values(known, "birthday", person)
    }
    return {min(years, key=lambda person: years[person])} if len(years) == 2 else set()


def standard(question: str, known: Known) -> Iterator[set[str]]:
    for relation in RELATIONS:
        for found in words_of(relation.reverse, question, relation.value_kind):
            yield set(subjects(known, relation.name, found["value"]))
    for relation in SLOTS:
        for found in words_of(relation.forward, question):
            yield set(values(known, relation.name, found["subject"]))


def worked_out(question: str, known: Known) -> Iterator[set[str]]:
    for found in words_of(DERIVED["decade"], question):
        yield {f"{born[-4:-1]}0s" for born in values(known, "birthday", found["subject"])}
    for found in words_of(DERIVED["older"], question):
        yield older(known, found["first"], found["second"])
    for found in words_of(DERIVED["employer_initials"], question):
        yield {
            way
            for employer in values(known, "employer", found["subject"])
            for way in initials(employer)
        }
    for relation in RELATIONS:
        common, held_out = (
            tuple(template.replace("{clause}", relation.clause) for template in templates)
            for templates in (
                DERIVED["person_initials"].common,
                DERIVED["person_initials"].held_out,
            )
        )
        asked = Phrasings(common, held_out)
        for found in words_of(asked, question, relation.value_kind):
            yield {
                way
                for person in subjects(known, relation.name, found["value"])
                for way in initials(person)
            }


def put_together(question: str, known: Known) -> Iterator[set[str]]:
    for found in words_of(PLAYS.forward, question):
        yield orders(values(known, "plays", found["subject"]))
    for found in words_of(DERIVED["repertoire"], question):
        yield count(values(known, "plays", found["subject"]))
    for found in words_of(DERIVED["staff"], question, "organisation"):
        yield count(subjects(known, "employer", found["value"]))


def solve(question: str, context: str) -> set[str]:
    """Every answer that the context gives; the question must be readable in one way only."""
    known = read(context)
    answers = [
        *standard(question, known),
        *worked_out(question, known),
        *put_together(question, known),
    ]
    assert len(answers) == 1, f"{question!r} reads in {len(answers)} ways"
    return answers[0]
