"""A reader of task ``coreference``: it knows the phrasings and nothing of how an example was
made."""

import re
from dataclasses import dataclass
from functools import cache

from datasets_gen.examples.lexicon import lexicon
from datasets_gen.writing.passage import BONDS
from tests.support.tasks.solvers.relations import Reading, read_question, readings
from tests.support.tasks.solvers.text import NAME, sentences

GENDERS = {"she": "f", "her": "f", "he": "m", "his": "m", "him": "m"}
MENTION = rf"(?:{NAME}|[Tt]he [a-z]+|[Ss]he|[Hh]er|[Hh]e|[Hh]is|him)"
BOND_NAMES = tuple(bond.name for bond in BONDS)


@dataclass(frozen=True)
class Statement:
    """What a sentence states, once it is known of whom; ``subject`` is None where that cannot be
    known."""

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
def read_sentence(sentence: str) -> Reading:
    """The sentence, readable in one way only; "her pet" is read as "the pet of her"."""
    sentence = re.sub(r"^(Her|His) ([a-z]+)", r"The \2 of \1", sentence)
    sentence = re.sub(r" (her|his) ([a-z]+)", r" the \2 of \1", sentence)
    (reading,) = readings(sentence, "statements", MENTION)
    return reading


def gender(name: str) -> str:
    return "f" if name.split()[0] in lexicon().feminine else "m"


def resolve(mention: str, mentioned: list[list[Candidate]], stated: list[Statement]) -> Candidate:
    """Whom a mention means, from the sentences before it; a pronoun, the last person of its gender,
    if that is one."""
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
    for sentence in sentences(context):
        reading = read_sentence(sentence)
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
