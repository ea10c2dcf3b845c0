"""Writes facts as prose, with the place of every subject and value kept as character spans."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from datasets_gen.examples.example import Span, StatedValue
from datasets_gen.examples.lexicon import draw_values
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.relations import Relation, draw_relations


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
    statement: str  # template of the sentence

    def stated(self) -> tuple[StatedValue, StatedValue]:
        """Returns the subject and the value with their places."""
        places = (self.fact.subject, self.subject), (self.fact.value, self.value)
        subject, value = (StatedValue(text, span.start, span.end) for text, span in places)
        return subject, value


@dataclass(frozen=True)
class Passage:
    text: str
    facts: tuple[StatedFact, ...]

    def find(self, relation: str, subject: str) -> StatedFact:
        """Finds the statement of ``relation(subject)``."""
        return next(s for s in self.facts if s.fact.relation.name == relation and s.fact.subject == subject)

    def stated(self) -> tuple[StatedValue, ...]:
        """Lists every subject and value, fact by fact."""
        return tuple(value for stated_fact in self.facts for value in stated_fact.stated())


def said_of(person: str, facts: Iterable[Fact]) -> set[str]:
    """Names the relations that the facts state of a person, or imply."""
    said: set[str] = set()
    for fact in facts:
        if fact.subject == person:
            said |= {fact.relation.name, fact.relation.implies}
        if fact.value == person:
            said.add(fact.relation.implies_of_value)
    return said - {""}


def deal_facts(rng: random.Random, people: Sequence[str], relations: Sequence[Sequence[Relation]]) -> list[Fact]:
    """Draws a value for each relation of each person. Values of one relation share no word: they are drawn together."""
    used = dict.fromkeys(relation for of_person in relations for relation in of_person)
    values = {relation: draw_values(rng, relation.value_kind, len(people)) for relation in used}
    return [
        Fact(relation, person, values[relation][number])
        for number, (person, of_person) in enumerate(zip(people, relations, strict=True))
        for relation in of_person
    ]


def draw_facts(
    rng: random.Random, people: Sequence[str], relations: Sequence[Relation], count: tuple[int, int]
) -> list[Fact]:
    """Draws (fewest, most) facts about each of the people, from a pool of one relation more than anyone has: most
    relations are said of several people, and the kind of value asked for does not give the answer away."""
    pool = rng.sample(relations, count[1] + 1)
    return deal_facts(rng, people, [draw_relations(rng, pool, rng.randint(*count)) for _ in people])


def write(template: str, words: Mapping[str, str], start: int) -> tuple[str, dict[str, tuple[int, int]]]:
    """Writes a sentence that starts at ``start``; returns it, and the character range of each word in its order."""
    text = ""
    places: dict[str, tuple[int, int]] = {}
    for plain, slot, _, _ in Formatter().parse(template):
        text += plain
        if slot:
            places[slot] = (start + len(text), start + len(text) + len(words[slot]))
            text += words[slot]
    return text, places


def write_fact(template: str, subject: str, fact: Fact, start: int) -> tuple[str, StatedFact]:
    """Writes the sentence that states a fact of ``subject``, as the text calls it; it starts at ``start``."""
    text, places = write(template, {"subject": subject, "value": fact.value}, start)
    spans = Span("subject", *places["subject"]), Span("answer", *places["value"])
    return text, StatedFact(fact, *spans, Span("fact", start, start + len(text)), template)


def write_passage(rng: random.Random, facts: Sequence[Fact], wording: Wording) -> Passage:
    """Writes one sentence for each fact, in the given order, in phrasings drawn at random."""
    text = ""
    stated = []
    for fact in facts:
        text += " " if text else ""
        template = wording.choose(rng, fact.relation.statements)
        sentence, stated_fact = write_fact(template, fact.subject, fact, len(text))
        text += sentence
        stated.append(stated_fact)
    return Passage(text, tuple(stated))
