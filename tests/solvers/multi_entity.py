"""A reader of task ``multi_entity``: it knows the phrasings and nothing of how an example was made."""

import re
from dataclasses import dataclass
from functools import cache

from datasets_gen.relations import ATTRIBUTES, BONDS, Relation
from datasets_gen.wording import Phrasings

NAME = r"[A-Z][a-z]+ [A-Z][a-z]+"
PHRASE = rf"(?:the [a-z]+ of )?{NAME}"
VALUES = {
    "city": r"[A-Z][a-z]+",
    "organisation": NAME,
    "event": NAME,
    "person": NAME,
    "date": r"\d+ [A-Z][a-z]+ \d+",
    "number": r"\d+",
}


@dataclass(frozen=True)
class Reading:
    """A text read as a phrasing of a relation; ``subject`` or ``value`` is empty where the text does not name it."""

    relation: str
    template: str
    subject: str
    value: str


@cache
def patterns(part: str, subject: str) -> list[tuple[Relation, str, re.Pattern[str]]]:
    """All templates of statements, forward or reverse questions, as regular expressions."""
    found = []
    for relation in (*ATTRIBUTES, *BONDS):
        phrasings: Phrasings = getattr(relation, part)
        for template in (*phrasings.common, *phrasings.held_out):
            pattern = re.escape(template).replace(r"\{subject\}", f"(?P<subject>{subject})")
            value = VALUES.get(relation.value_kind, "[a-z]+")
            found.append((relation, template, re.compile(pattern.replace(r"\{value\}", f"(?P<value>{value})"))))
    return found


def readings(text: str, part: str, subject: str) -> list[Reading]:
    return [
        Reading(relation.name, template, found.groupdict().get("subject", ""), found.groupdict().get("value", ""))
        for relation, template, pattern in patterns(part, subject)
        if (found := pattern.fullmatch(text))
    ]


@cache
def read_sentence(sentence: str) -> Reading:
    """What a sentence states; it must be readable in one way only."""
    (reading,) = readings(sentence, "statements", NAME)
    return reading


def read(context: str) -> list[Reading]:
    return [read_sentence(sentence.strip()) for sentence in re.findall(r"[^.]+\.", context)]


@cache
def read_question(question: str) -> tuple[Reading, bool]:
    """The question, readable in one way only, and whether it is a reverse one."""
    forward, reverse = readings(question, "forward", PHRASE), readings(question, "reverse", PHRASE)
    (reading,) = forward + reverse
    return reading, bool(reverse)


def solve(question: str, context: str) -> set[str]:
    """Every answer that the context gives to the question."""
    stated = read(context)
    asked, reverse = read_question(question)
    of_kind = [said for said in stated if said.relation == asked.relation]
    if reverse:
        return {said.subject for said in of_kind if said.value == asked.value}
    subjects = {asked.subject}
    if over_link := re.fullmatch(rf"the ([a-z]+) of ({NAME})", asked.subject):
        subjects = {said.value for said in stated if (said.relation, said.subject) == over_link.groups()}
    return {said.value for said in of_kind if said.subject in subjects}
