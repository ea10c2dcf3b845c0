"""Facts written out as prose, with the place of every subject and value kept as character spans."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from datasets_gen.example import Span
from datasets_gen.relations import Relation
from datasets_gen.wording import Wording


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
        """Every subject and value in order of first mention, each once."""
        return tuple(dict.fromkeys(name for s in self.facts for name in (s.fact.subject, s.fact.value)))


def write_sentence(
    template: str, subject: str, value: str, offset: int
) -> tuple[str, tuple[int, int], tuple[int, int]]:
    """The sentence, and the character ranges of subject and value in a text in which it starts at ``offset``."""
    text = ""
    places: dict[str, tuple[int, int]] = {}
    rest = template
    while rest:
        plain, _, tail = rest.partition("{")
        text += plain
        if not tail:
            break
        slot, _, rest = tail.partition("}")
        word = {"subject": subject, "value": value}[slot]
        places[slot] = (offset + len(text), offset + len(text) + len(word))
        text += word
    return text, places["subject"], places["value"]


def write_passage(rng: random.Random, facts: Sequence[Fact], wording: Wording) -> Passage:
    """One sentence for each fact, in the given order, each in a phrasing drawn at random."""
    text = ""
    stated = []
    for fact in facts:
        if text:
            text += " "
        start = len(text)
        sentence, subject, value = write_sentence(
            wording.choose(rng, fact.relation.statements), fact.subject, fact.value, start
        )
        text += sentence
        stated.append(
            StatedFact(fact, Span("subject", *subject), Span("answer", *value), Span("fact", start, len(text)))
        )
    return Passage(text, tuple(stated))
