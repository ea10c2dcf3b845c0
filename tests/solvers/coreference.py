"""A reader of task ``coreference``: it knows the phrasings and nothing of how an example was made."""

import re
from dataclasses import dataclass
from functools import cache

from datasets_gen.lexicon import lexicon
from datasets_gen.relations import ATTRIBUTES, BONDS, Relation
from datasets_gen.wording import Phrasings

NAME = r"[A-Z][a-z]+ [A-Z][a-z]+"
GENDERS = {"she": "f", "her": "f", "he": "m", "his": "m", "him": "m"}
MENTION = rf"(?:{NAME}|[Tt]he [a-z]+|[Ss]he|[Hh]er|[Hh]e|[Hh]is|him)"
VALUES = {
    "city": r"[A-Z][a-z]+",
    "organisation": NAME,
    "event": NAME,
    "person": NAME,
    "date": r"\d+ [A-Z][a-z]+ \d+",
    "number": r"\d+",
}
BOND_NAMES = tuple(bond.name for bond in BONDS)


@dataclass(frozen=True)
class Reading:
    """A text read as a phrasing of a relation; ``subject`` or ``value`` is empty where the text does not name it."""

    relation: str
    template: str
    subject: str
    value: str


@dataclass(frozen=True)
class Statement:
    """What a sentence states, once it is known of whom; ``subject`` is None where that cannot be known."""

    relation: str
    mention: str
    subject: str | None
    value: str


@dataclass(frozen=True)
class Candidate:
    """Whom a pronoun may mean: somebody known or not, of one of the genders."""

    person: str | None
    genders: str


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
    """The sentence, readable in one way only; "her pet" is read as "the pet of her"."""
    sentence = re.sub(r"^(Her|His) ([a-z]+)", r"The \2 of \1", sentence)
    sentence = re.sub(r" (her|his) ([a-z]+)", r" the \2 of \1", sentence)
    (reading,) = readings(sentence, "statements", MENTION)
    return reading


@cache
def read_question(question: str) -> tuple[Reading, bool]:
    """The question, readable in one way only, and whether it is a reverse one."""
    forward, reverse = readings(question, "forward", NAME), readings(question, "reverse", NAME)
    (reading,) = forward + reverse
    return reading, bool(reverse)


def gender(name: str) -> str:
    return "f" if name.split()[0] in lexicon().feminine else "m"


def resolve(mention: str, mentioned: list[list[Candidate]], stated: list[Statement]) -> Candidate:
    """Whom a mention means, from the sentences before it; a pronoun, the last person of its gender, if that is one."""
    if re.fullmatch(NAME, mention):
        return Candidate(mention, gender(mention))
    if mention.lower() in GENDERS:
        wanted = GENDERS[mention.lower()]
        for of_sentence in reversed(mentioned):
            if possible := [candidate for candidate in of_sentence if wanted in candidate.genders]:
                return Candidate(possible[0].person if len(possible) == 1 else None, wanted)
        return Candidate(None, wanted)
    noun = mention.split()[1]
    meant = {said.subject for said in stated if said.relation == "job" and said.value == noun}
    meant |= {said.value for said in stated if said.relation == noun and noun in BOND_NAMES}
    person = meant.pop() if len(meant) == 1 else None
    return Candidate(person, gender(person) if person else "fm")


@cache
def read(context: str) -> tuple[Statement, ...]:
    mentioned: list[list[Candidate]] = []
    stated: list[Statement] = []
    for sentence in re.findall(r"[^.]+\.", context):
        reading = read_sentence(sentence.strip())
        subject = resolve(reading.subject, mentioned, stated)
        mentioned.append([subject])
        if reading.relation in BOND_NAMES:
            mentioned[-1].append(Candidate(reading.value, gender(reading.value)))
        stated.append(Statement(reading.relation, reading.subject, subject.person, reading.value))
    return tuple(stated)


def solve(question: str, context: str) -> set[str]:
    """Every answer that the context gives to the question."""
    asked, reverse = read_question(question)
    of_kind = [said for said in read(context) if said.relation == asked.relation]
    if reverse:
        return {said.subject for said in of_kind if said.value == asked.value and said.subject}
    return {said.value for said in of_kind if said.subject == asked.subject}
