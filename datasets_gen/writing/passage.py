"""Facts written out as prose, with the place of every subject and value kept as character spans."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from datasets_gen.examples.example import Span
from datasets_gen.examples.lexicon import draw_values
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.relations import Relation


@dataclass(frozen=True)
class Fact:
    """``relation(subject) = value``."""

    relation: Relation
    subject: str
    value: str


@dataclass(frozen=True)
class StatedFact:
    """A fact and where the passage states it."""

    fact: Fact
    subject: Span
    value: Span
    sentence: Span


@dataclass(frozen=True)
class Passage:
    text: str
    facts: tuple[StatedFact, ...]

    def find(self, relation: str, subject: str) -> StatedFact:
        """The statement of ``relation(subject)``."""
        return next(s for s in self.facts if s.fact.relation.name == relation and s.fact.subject == subject)

    def stated_values(self) -> tuple[str, ...]:
        """Lists every subject and value once, in order of first mention."""
        return tuple(dict.fromkeys(name for s in self.facts for name in (s.fact.subject, s.fact.value)))


def said_of(person: str, facts: Iterable[Fact]) -> set[str]:
    """Names of the relations that the facts state of a person, or imply."""
    said: set[str] = set()
    for fact in facts:
        if fact.subject == person:
            said |= {fact.relation.name, fact.relation.implies}
        if fact.value == person:
            said.add(fact.relation.implies_of_value)
    return said - {""}


def deal_facts(rng: random.Random, people: Sequence[str], relations: Sequence[Sequence[Relation]]) -> list[Fact]:
    """A value for each relation of each person. Two values of one relation share no word: they are drawn together."""
    used = dict.fromkeys(relation for of_person in relations for relation in of_person)
    values = {relation: draw_values(rng, relation.value_kind, len(people)) for relation in used}
    return [
        Fact(relation, person, values[relation][number])
        for number, (person, of_person) in enumerate(zip(people, relations, strict=True))
        for relation in of_person
    ]


def write(template: str, words: Mapping[str, str], start: int) -> tuple[str, dict[str, tuple[int, int]]]:
    """The sentence, and in its order the character range of each word, in a text in which it starts at ``start``."""
    text = ""
    places: dict[str, tuple[int, int]] = {}
    for plain, slot, _, _ in Formatter().parse(template):
        text += plain
        if slot:
            places[slot] = (start + len(text), start + len(text) + len(words[slot]))
            text += words[slot]
    return text, places


def write_fact(template: str, subject: str, fact: Fact, start: int) -> tuple[str, StatedFact]:
    """The sentence that states a fact of its subject, called so, in a text in which it starts at ``start``."""
    text, places = write(template, {"subject": subject, "value": fact.value}, start)
    named, value = Span("subject", *places["subject"]), Span("answer", *places["value"])
    return text, StatedFact(fact, named, value, Span("fact", start, start + len(text)))


def write_passage(rng: random.Random, facts: Sequence[Fact], wording: Wording) -> Passage:
    """One sentence for each fact, in the given order, each in a phrasing drawn at random."""
    text = ""
    stated = []
    for fact in facts:
        text += " " if text else ""
        sentence, told = write_fact(wording.choose(rng, fact.relation.statements), fact.subject, fact, len(text))
        text += sentence
        stated.append(told)
    return Passage(text, tuple(stated))
