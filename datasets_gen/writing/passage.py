"""Relations of a person, and facts written as prose with the places of every subject and value.

In a template ``{subject}`` is a full name or, in a chain, a phrase such as "the mentor of Ada
Falbrook"."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from string import Formatter

from pydantic import TypeAdapter

from datasets_gen.examples.example import AnswerType, Span, StatedValue
from datasets_gen.examples.lexicon import draw_values
from datasets_gen.examples.wording import Phrasings, Wording, tables


@dataclass(frozen=True)
class Relation:
    """A functional relation from a person to a value: within a context, one subject has one value
    and one value one subject, so that the question is unambiguous in both directions."""

    name: str
    value_kind: str  # of the lexicon
    value_type: AnswerType
    statements: Phrasings
    forward: Phrasings
    reverse: Phrasings
    clause: str  # says the value of an unnamed subject, as in "Whose mentor lives in Velden?"
    # The relation that the subject, or the value, may then be said to have as well. To ask for it
    # as for something unknown would not be honest; where both are stated of one, neither can be
    # asked for: who keeps a heron and owns a canoe has two things.
    implies: str = ""
    implies_of_value: str = ""


def draw_relations(rng: random.Random, pool: Sequence[Relation], count: int) -> list[Relation]:
    """Draws ``count`` relations of a pool, of which none implies another. The pool has one more at
    least."""
    while True:
        drawn = rng.sample(pool, count)
        if {relation.implies for relation in drawn}.isdisjoint(
            {relation.name for relation in drawn}
        ):
            return drawn


# A job is filed under `thing`: the answer types are those of arXiv 2603.01426, which has no type of
# its own for it.
RELATIONS: Mapping[str, Relation] = TypeAdapter(dict[str, Relation]).validate_python(
    {name: {"name": name, **fields} for name, fields in tables()["relations"].items()}
)
ATTRIBUTES = tuple(
    RELATIONS[name]
    for name in ("home", "job", "employer", "pet", "possession", "birthday", "locker", "attended")
)
# Where people have lawyers and coaches "lawyer" would be a fair answer to what the lawyer of
# somebody works as.
BESIDE_BONDS = tuple(relation for relation in ATTRIBUTES if relation.name != "job")
# All bonds are directed: the spouse of a spouse is oneself, whatever the passage states. No one has
# them as a job. Bonds of teaching are nearly the same: who has a tutor may be said to have a
# teacher. What is not stated is therefore asked for as a lawyer of those who have a teacher, and
# the other way round.
TEACHERS = tuple(RELATIONS[name] for name in ("mentor", "tutor", "coach", "teacher"))
LAWYER = RELATIONS["lawyer"]
BONDS = (*TEACHERS, LAWYER)


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
        places = (self.fact.subject, self.subject), (self.fact.value, self.value)
        subject, value = (StatedValue(text, span.start, span.end) for text, span in places)
        return subject, value


@dataclass(frozen=True)
class Passage:
    text: str
    facts: tuple[StatedFact, ...]

    def find(self, relation: str, subject: str) -> StatedFact:
        """Finds the statement of ``relation(subject)``."""
        return next(
            s for s in self.facts if s.fact.relation.name == relation and s.fact.subject == subject
        )

    def stated(self) -> tuple[StatedValue, ...]:
        """Lists every subject and value, fact by fact."""
        return tuple(chain.from_iterable(fact.stated() for fact in self.facts))


def said_relations(person: str, facts: Iterable[Fact]) -> set[str]:
    """Names the relations that the facts state of a person, or imply."""
    said: set[str] = set()
    for fact in facts:
        if fact.subject == person:
            said |= {fact.relation.name, fact.relation.implies}
        if fact.value == person:
            said.add(fact.relation.implies_of_value)
    return said - {""}


def deal_facts(
    rng: random.Random, people: Sequence[str], relations: Sequence[Sequence[Relation]]
) -> list[Fact]:
    """Draws a value for each relation of each person. Values of one relation share no word: they
    are drawn together."""
    # In the order of first use, and no set: values are drawn in the same order in every process.
    used = dict.fromkeys(chain.from_iterable(relations))
    # For everybody, also who lacks the relation: values are then told by the number of the person.
    values = {relation: draw_values(rng, relation.value_kind, len(people)) for relation in used}
    facts = []
    for number, (person, of_person) in enumerate(zip(people, relations, strict=True)):
        for relation in of_person:
            facts.append(Fact(relation, person, values[relation][number]))
    return facts


def draw_facts(
    rng: random.Random, people: Sequence[str], relations: Sequence[Relation], count: tuple[int, int]
) -> list[Fact]:
    """Draws (fewest, most) facts about each of the people, from a pool of one relation more than
    anyone has: most relations are said of several people, and the kind of value asked for does not
    give the answer away."""
    pool = rng.sample(relations, count[1] + 1)
    return deal_facts(rng, people, [draw_relations(rng, pool, rng.randint(*count)) for _ in people])


def write(
    template: str, words: Mapping[str, str], start: int
) -> tuple[str, dict[str, tuple[int, int]]]:
    """Writes a sentence that starts at ``start``; returns it, and the character range of each word
    in its order."""
    text = ""
    places: dict[str, tuple[int, int]] = {}
    # Part by part, as ``format`` would not tell where the words stand.
    for plain, slot, _, _ in Formatter().parse(template):
        text += plain
        if slot:
            places[slot] = (start + len(text), start + len(text) + len(words[slot]))
            text += words[slot]
    return text, places


def write_fact(template: str, subject: str, fact: Fact, start: int) -> tuple[str, StatedFact]:
    """Writes the sentence that states a fact of ``subject``, as the text calls it; it starts at
    ``start``."""
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
