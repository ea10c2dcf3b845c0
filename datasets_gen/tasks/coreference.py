"""Task ``coreference``: facts told with pronouns and definite descriptions, asked about by name or
value."""

import random
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from datasets_gen.examples.example import Question, Span, StatedValue
from datasets_gen.examples.lexicon import draw_people, draw_unmentioned, lexicon
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.passage import (
    ATTRIBUTES,
    LAWYER,
    TEACHERS,
    Fact,
    Relation,
    deal_facts,
    draw_relations,
    said_relations,
    write_fact,
)
from datasets_gen.writing.questions import Asker, answerable, draw_different

Kind = Literal["name", "pronoun", "description"]


@dataclass(frozen=True)
class CoreferenceSize:
    """A level of difficulty."""

    people: tuple[int, int]  # fewest and most, as below
    attributes: tuple[int, int]  # of each
    bonds: tuple[int, int]
    references: tuple[Kind, ...]  # in use
    phrasings: int  # in use


# By level; the last is the task. First all by name, then one kind of reference alone, then both and
# longer.
SIZES = (
    CoreferenceSize((2, 2), (1, 2), (0, 0), (), 1),
    CoreferenceSize((2, 2), (2, 3), (0, 0), ("pronoun",), 1),
    CoreferenceSize((2, 2), (2, 3), (0, 1), ("description",), 1),
    CoreferenceSize((2, 2), (2, 3), (0, 1), ("pronoun", "description"), 1),
    CoreferenceSize((2, 3), (2, 3), (0, 1), ("pronoun", "description"), 3),
    CoreferenceSize((2, 3), (3, 4), (0, 2), ("pronoun", "description"), 3),
)
UNANSWERABLE_SHARE = 0.25  # of the forward and of the reverse questions
REVERSE_SHARE = 0.35
REFERENCE_SHARE = 0.95  # of the sentences that could do without a full name
# Of those that could have either, right after a sentence about the same person; else the rest.
PRONOUN_SHARE = 0.6
# Of those that could have one that goes back to another, which would be rare otherwise.
CHAIN_SHARE = 0.6
STAY_SHARE = 0.6  # of the sentences go on about the same person
EMPLOYED_SHARE = 0.8  # of the people, where there are descriptions
JOB_FIRST_SHARE = 0.4  # of those: a description needs a job that has been told
LONGEST_CHAIN = 2  # sentences to be read before the one that states the fact
JOB = next(relation for relation in ATTRIBUTES if relation.name == "job")
GENDERED_JOBS = ("ferryman", "midwife")  # would say "he" or "she" before the pronoun does
FORMS = {
    True: {"he": "she", "his": "her", "him": "her"},
    False: {"he": "he", "his": "his", "him": "him"},
}


# --- who can be called what


@dataclass(frozen=True)
class ReferenceWay:
    """A way to refer to a person."""

    kind: Kind
    words: str
    read: tuple[int, ...]  # numbers of the sentences to be read to know who is meant, last first
    name: Span  # where these have the full name


@dataclass
class Referent:
    """A person, and how they can be referred to in the next sentence.

    A pronoun goes back to the sentence that last named or described the person; since then, that
    sentence included, nobody else of that gender was mentioned."""

    name: str
    feminine: bool
    descriptions: list[ReferenceWay] = field(default_factory=list)
    pronoun: ReferenceWay | None = None
    doubtful: bool = False  # no pronoun, although the person is the last one mentioned
    known: bool = False  # mentioned before

    def may_be_confused_with(self, other: "Referent") -> bool:
        """Tells whether a pronoun for this person may mean another one, who was mentioned before."""
        return other is not self and other.known and other.feminine == self.feminine

    def was_mentioned(self, kind: Kind, way: ReferenceWay, clearly: bool) -> None:
        """Notes a mention. ``way``: what a pronoun that went back to it would stand for;
        ``clearly``: if it could.

        Where it could go back to one sentence as well as to another, neither is the evidence: then
        it is doubtful."""
        self.known = True
        if kind == "pronoun":
            return
        if self.pronoun is None and not self.doubtful:
            self.pronoun, self.doubtful = (way, False) if clearly else (None, True)
        # A description that is itself understood from the sentence the pronoun goes back to is no
        # second one.
        elif kind == "name" or self.pronoun is None or self.pronoun.read[0] not in way.read:
            self.pronoun, self.doubtful = None, True


@dataclass(frozen=True)
class Statement:
    """A fact and where it is stated."""

    fact: Fact
    value: Span
    sentence: Span
    read: tuple[int, ...]  # numbers of the sentences to be read to know of whom
    name: Span  # where these name the person


@cache
def pronoun_template(template: str) -> tuple[str, str]:
    """Returns a statement with room for a pronoun as its subject, and the form of it: ``he``,
    ``his`` or ``him``."""
    possessive, count = re.subn(r"\b[Tt]he (\w+) of \{subject\}", r"{subject} \1", template)
    if count:
        return possessive, "his"
    return template, "him" if template.endswith("{subject}.") else "he"


class CoreferenceStory:
    """Sentences told one after the other, each with the references that those before it allow."""

    def __init__(
        self, rng: random.Random, wording: Wording, references: tuple[Kind, ...], people: list[str]
    ) -> None:
        self.rng, self.wording, self.references = rng, wording, references
        feminine = lexicon().feminine
        self.people = {name: Referent(name, name.split()[0] in feminine) for name in people}
        self.statements: list[Statement] = []
        self.described: set[str] = set()  # the words of the descriptions that were used
        self.values: list[StatedValue] = []  # in order
        self.text = ""

    def tell(self, fact: Fact) -> None:
        person = self.people[fact.subject]
        way = self._choose_way(person)
        template, words = self.wording.choose(self.rng, fact.relation.statements), person.name
        if way and way.kind == "pronoun":
            template, form = pronoun_template(template)
            words = FORMS[person.feminine][form]
        elif way:
            words = way.words
            self.described.add(words)
        if template.startswith("{subject}"):
            words = words[0].upper() + words[1:]
        self.text += " " if self.text else ""
        sentence, stated = write_fact(template, words, fact, len(self.text))
        self.text += sentence
        subject, value = stated.stated()
        if way:
            # Referred to otherwise a person is not named: nothing but the value is stated.
            kind, name, read = way.kind, way.name, way.read
            self.values.append(value)
        else:
            kind, name, read = "name", stated.subject, ()
            self.values += sorted((subject, value), key=lambda place: place.start)
        self.statements.append(Statement(fact, stated.value, stated.sentence, read, name))
        self._note(person, kind)

    def _choose_way(self, person: Referent) -> ReferenceWay | None:
        """Chooses how to refer to a person; None for the full name."""
        pronoun = person.pronoun if "pronoun" in self.references else None
        if pronoun and len(pronoun.read) > LONGEST_CHAIN:
            pronoun = None
        rng = self.rng
        if not (pronoun or person.descriptions) or rng.random() >= REFERENCE_SHARE:
            return None
        ways = [*([pronoun] if pronoun else []), *person.descriptions]
        longest = [way for way in ways if len(way.read) == LONGEST_CHAIN]
        if longest and rng.random() < CHAIN_SHARE:
            return rng.choice(longest)
        goes_on = self.statements[-1].fact.subject == person.name
        preferred = PRONOUN_SHARE if goes_on else 1 - PRONOUN_SHARE
        if pronoun and (not person.descriptions or rng.random() < preferred):
            return pronoun
        return rng.choice(person.descriptions)

    def _note(self, subject: Referent, kind: Kind) -> None:
        """Notes what the last sentence means for references in the next ones."""
        number, last = len(self.statements) - 1, self.statements[-1]
        read = (number, *last.read)
        mentioned: list[tuple[Referent, Kind, ReferenceWay]] = [
            (subject, kind, ReferenceWay("pronoun", "", read, last.name))
        ]
        other = self.people.get(last.fact.value)
        if other:
            name = last.value.as_a("subject")
            mentioned.append((other, "name", ReferenceWay("pronoun", "", (number,), name)))
            self._describe(other, last.fact.relation.name, (number,), name)
        elif last.fact.relation is JOB:
            self._describe(subject, last.fact.value, read, last.name)
        alone = other is None or other.feminine != subject.feminine
        names, genders = set(), set()
        for person, _, _ in mentioned:
            names.add(person.name)
            genders.add(person.feminine)
        for person in self.people.values():
            if person.feminine in genders and not (alone and person.name in names):
                person.pronoun, person.doubtful = None, False
        if not alone:
            for person, _, _ in mentioned:
                person.known = True
            return
        for person, how, way in mentioned:
            rivals = any(map(person.may_be_confused_with, self.people.values()))
            # "The mentor of the baker is X. He ...": who does not know the baker cannot tell
            # whether he is meant. And a sentence about two people is no new beginning, if somebody
            # else of that gender was told of before.
            clearly = other is None or not (rivals or (person is other and kind == "description"))
            person.was_mentioned(how, way, clearly)

    def _describe(self, person: Referent, noun: str, read: tuple[int, ...], name: Span) -> None:
        if "description" in self.references and len(read) <= LONGEST_CHAIN:
            person.descriptions.append(ReferenceWay("description", f"the {noun}", read, name))


# --- the facts


def make(rng: random.Random, request: Request) -> Draft:
    size = SIZES[request.level]
    wording = Wording(size.phrasings, request.held_out)
    people = draw_people(rng, request.split, rng.randint(*size.people))
    story = CoreferenceStory(rng, wording, size.references, people)
    for fact in _in_order(rng, _draw_facts(rng, size, people)):
        story.tell(fact)
    ask = Asker(rng, wording)
    swaps = _swaps(story)
    count = min(request.questions, len(story.statements) * 3 // 2)
    questions = draw_different(count, lambda: _question(ask, story, swaps))
    return Draft(story.text, tuple(story.values), questions)


def _draw_facts(rng: random.Random, size: CoreferenceSize, people: list[str]) -> list[list[Fact]]:
    """Draws the facts about each; there is an attribute that one of them has and another has
    not."""
    described = "description" in size.references
    # A job is dealt out apart, early enough for "the baker" to be told of.
    free = [relation for relation in ATTRIBUTES if not (described and relation is JOB)]
    pool = rng.sample(free, size.attributes[1] + 1)
    chosen: list[list[Relation]] = []
    different: set[frozenset[str]] = set()
    while len(different) < 2:
        chosen = []
        for _ in people:
            count = rng.randint(*size.attributes)
            chosen.append(_in_telling_order(rng, pool, count, described))
        different = set()
        for relations in chosen:
            different.add(frozenset(relation.name for relation in relations))
    dealt = deal_facts(rng, people, chosen)
    while any(fact.value in GENDERED_JOBS for fact in dealt):
        dealt = deal_facts(rng, people, chosen)
    facts: list[list[Fact]] = []
    for person in people:
        facts.append([fact for fact in dealt if fact.subject == person])
    # Each bond of a text is of its own kind, so that "the mentor" means one person.
    kinds = rng.sample((LAWYER, rng.choice(TEACHERS)), 2)
    bonds: list[Fact] = []
    while len(bonds) < min(rng.randint(*size.bonds), len(people) - 1):
        subject, value = rng.sample(people, 2)
        if all({subject, value} != {bond.subject, bond.value} for bond in bonds):
            bonds.append(Fact(kinds[len(bonds)], subject, value))
            facts[people.index(subject)].append(bonds[-1])
    return facts


def _in_telling_order(
    rng: random.Random, pool: list[Relation], count: int, described: bool
) -> list[Relation]:
    if not described or rng.random() >= EMPLOYED_SHARE:
        return draw_relations(rng, pool, count)
    others = draw_relations(rng, pool, count - 1)
    place = 0 if rng.random() < JOB_FIRST_SHARE else rng.randint(0, len(others))
    return [*others[:place], JOB, *others[place:]]


def _in_order(rng: random.Random, facts: list[list[Fact]]) -> list[Fact]:
    """Orders the facts person by person, with turns in between; bonds stand wherever they come."""
    for of_person in facts:
        if of_person[-1].relation in (LAWYER, *TEACHERS):
            of_person.insert(rng.randrange(len(of_person)), of_person.pop())
    left = [of_person[::-1] for of_person in facts]
    ordered: list[Fact] = []
    current = left[0]
    while any(left):
        if not current or rng.random() >= STAY_SHARE:
            current = rng.choice([of_person for of_person in left if of_person])
        ordered.append(current.pop())
    return ordered


# --- the questions


def _swaps(story: CoreferenceStory) -> list[tuple[Relation, str]]:
    """Lists facts that are stated of one person and neither stated nor implied of another, who can
    be asked about."""
    facts = [statement.fact for statement in story.statements]
    said = {person: said_relations(person, facts) for person in story.people}
    stated: dict[str, Relation] = {}
    for fact in facts:
        stated[fact.relation.name] = fact.relation
    swaps = []
    for relation in stated.values():
        for person, names in said.items():
            if relation.name not in names:
                swaps.append((relation, person))
    return swaps


def _question(ask: Asker, story: CoreferenceStory, swaps: list[tuple[Relation, str]]) -> Question:
    rng = ask.rng
    statement = rng.choice(story.statements)
    reverse = rng.random() < REVERSE_SHARE
    fact = statement.fact
    if rng.random() >= UNANSWERABLE_SHARE:
        # "The baker" tells the job again, so that no sentence alone would be the evidence; and what
        # somebody's lawyer works as has two answers.
        bound = any(other.fact.value == fact.subject for other in story.statements)
        ambiguous = fact.relation is JOB and (bound or f"the {fact.value}" in story.described)
        return _answerable(ask, story, statement, reverse or ambiguous)
    if not reverse and swaps:
        relation, person = rng.choice(swaps)
        return ask.unknown_forward(relation, person)
    return _unknown_value(ask, story, fact)


def _answerable(
    ask: Asker, story: CoreferenceStory, statement: Statement, reverse: bool
) -> Question:
    fact, relation = statement.fact, statement.fact.relation
    name, value = statement.name, statement.value
    evidence = [statement.sentence]
    for number in sorted(statement.read):
        sentence = story.statements[number].sentence
        evidence.append(sentence.as_a("bridge"))
    hops = len(evidence)
    if reverse:
        spans = (name.as_a("answer"), value.as_a("subject"), *evidence)
        text = ask.reverse(relation, fact.value)
        return answerable(text, fact.subject, "person", "reverse", spans, hops=hops)
    text = ask.forward(relation, fact.subject)
    spans = (value, name, *evidence)
    return answerable(text, fact.value, relation.value_type, "forward", spans, hops=hops)


def _unknown_value(ask: Asker, story: CoreferenceStory, fact: Fact) -> Question:
    """Asks for a value that is not stated, or a person who is this to nobody."""
    # A text has one bond of a kind at most, so that any other person is this to nobody.
    rng, relation = ask.rng, fact.relation
    if fact.value in story.people:
        value = rng.choice([person for person in story.people if person != fact.value])
    else:
        mentioned = set(GENDERED_JOBS)
        for stated in story.values:
            mentioned.add(stated.text)
        value = draw_unmentioned(rng, relation.value_kind, mentioned)
    return ask.unknown_reverse(relation, value)


COREFERENCE = Task(
    name="coreference",
    version="2.1.0",
    description="Two or three people told of by pronouns and definite descriptions, and asked about by name",
    make=make,
    chances=(28.9, 26.5, 28.9, 28.5, 25.3, 25.6),
    contexts={"quick": 12, "paper": 8000},
    paper="arXiv 2603.01426",
    questions_per_context=9,
)
