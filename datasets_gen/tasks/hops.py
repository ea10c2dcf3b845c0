"""Task ``hops``: chains of one to four facts, such as "Where does the mentor of the teacher of X
live?"."""

import random
from dataclasses import dataclass

from datasets_gen.examples.example import Question
from datasets_gen.examples.lexicon import draw_people
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import Wording, read_phrasings
from datasets_gen.writing.passage import (
    BESIDE_BONDS,
    LAWYER,
    TEACHERS,
    Fact,
    Passage,
    Relation,
    StatedFact,
    deal_facts,
    write_passage,
)
from datasets_gen.writing.questions import (
    Asker,
    answerable,
    draw_different,
    forward_question,
    reverse_question,
)

# (fewest, most) people in a line, how many stand beside it, the longest chain, and phrasings in
# use, by level; the last is the task.
SIZES = (
    ((2, 2), 0, 1, 1),
    ((2, 3), 0, 1, 1),
    ((3, 3), 0, 2, 1),
    ((3, 3), 0, 2, 3),
    ((3, 4), 1, 3, 3),
    ((5, 6), 1, 4, 3),
)
UNANSWERABLE_SHARE = 0.1
REVERSE_SHARE = 0.25
# Where chains begin, all questions are forward and answerable: chains are not learned while what is
# easier pays.
CHAINS_LEVEL = 2
WHOSE = read_phrasings("derived")["whose"]


@dataclass(frozen=True)
class ChainOfPeople:
    """Each person is bound to the next, so that every bond is unambiguous both ways; the last and
    those beside are bound to nobody, and nobody to the first and those beside.

    In a closed ring whoever is nobody's mentor would be the answer that was evicted, and a long way
    forward a short one back."""

    people: list[str]
    bonds: list[Relation]
    attribute: Relation
    passage: Passage

    def bond_from(self, position: int) -> StatedFact:
        return self.passage.find(self.bonds[position].name, self.people[position])

    def attribute_at(self, position: int) -> StatedFact:
        return self.passage.find(self.attribute.name, self.people[position])


def make(rng: random.Random, request: Request) -> Draft:
    people_range, beside, longest, phrasings = SIZES[request.level]
    wording = Wording(phrasings, request.held_out)
    ask = Asker(rng, wording)
    length = rng.randint(*people_range)
    people = draw_people(rng, request.split, length + beside)
    # As often a lawyer as a teacher of some kind: a question for what is not stated names them as
    # often as others do.
    bonds = [rng.choice((LAWYER, rng.choice(TEACHERS))) for _ in range(length - 1)]
    attribute = rng.choice(BESIDE_BONDS)
    facts = list(map(Fact, bonds, people, people[1:length]))
    # All have the same attribute: a kind of value that one alone has would tell who is meant.
    facts += deal_facts(rng, people, [[attribute]] * len(people))
    # Or a chain could be followed from sentence to sentence, whatever the names.
    rng.shuffle(facts)
    passage = write_passage(rng, facts, wording)
    line = ChainOfPeople(people, bonds, attribute, passage)
    if request.level > CHAINS_LEVEL:
        unanswerable_share = UNANSWERABLE_SHARE
    else:
        unanswerable_share = 0.0
    reverse_share = REVERSE_SHARE
    possible = 2 * len(facts)
    if request.level == CHAINS_LEVEL:
        reverse_share = 0.0
        # Forward alone there are fewer: three people have five facts and three chains of two.
        possible = 3 * len(facts) // 2
    questions = draw_different(
        min(request.questions, possible),
        lambda: _question(ask, line, longest, unanswerable_share, reverse_share),
    )
    return Draft(passage.text, passage.stated(), questions)


def _question(
    ask: Asker, line: ChainOfPeople, longest: int, unanswerable_share: float, reverse_share: float
) -> Question:
    hops = ask.rng.randint(1, longest)
    if ask.rng.random() < unanswerable_share:
        return _broken_chain(ask, line, hops)
    if ask.rng.random() < reverse_share:
        return _reverse(ask, line, min(hops, 2))
    if hops == 1:
        return forward_question(ask, ask.rng.choice(line.passage.facts))
    return _forward_chain(ask, line, hops)


def _subject_phrase(bonds: list[Relation], person: str) -> str:
    """Returns such as "the teacher of the mentor of X" for bonds (mentor, teacher) starting from
    X."""
    phrase = person
    for bond in bonds:
        phrase = f"the {bond.name} of {phrase}"
    return phrase


def _forward_chain(ask: Asker, line: ChainOfPeople, hops: int) -> Question:
    """Draws ``hops - 1`` bonds, then an attribute or, where there is one, one more bond of the
    person reached."""
    # More facts than there are bonds can be read with an attribute at the end alone.
    to_attribute = ask.rng.random() < 0.7 or hops > len(line.bonds)
    # With an attribute at its end a chain has one bond less, and can begin one person later.
    start = ask.rng.randrange(len(line.bonds) - hops + 1 + to_attribute)
    reached = start + hops - 1
    links = [line.bond_from(position) for position in range(start, reached)]
    last = line.attribute_at(reached) if to_attribute else line.bond_from(reached)
    bonds = [link.fact.relation for link in links]
    relation = last.fact.relation
    text = ask.forward(relation, _subject_phrase(bonds, links[0].fact.subject))
    steps = (link.sentence.as_a("bridge") for link in links)
    spans = (last.value, links[0].subject, last.sentence, *steps)
    bridges = tuple(link.fact.value for link in links)
    return answerable(text, last.fact.value, relation.value_type, "forward", spans, bridges)


def _reverse(ask: Asker, line: ChainOfPeople, hops: int) -> Question:
    """Asks from a value to its person, and for two hops on to the person who has that one as a
    bond."""
    if hops == 1:
        return reverse_question(ask, ask.rng.choice(line.passage.facts))
    start = ask.rng.randrange(len(line.bonds))
    last = line.bond_from(start)
    link = line.attribute_at(start + 1)
    bond = last.fact.relation.name
    clause = link.fact.relation.clause.format(value=link.fact.value)
    text = ask.choose(WHOSE).format(bond=bond, clause=clause)
    spans = (
        last.subject.as_a("answer"),
        link.value.as_a("subject"),
        last.sentence,
        link.sentence.as_a("bridge"),
    )
    return answerable(text, last.fact.subject, "person", "reverse", spans, (link.fact.subject,))


def _broken_chain(ask: Asker, line: ChainOfPeople, hops: int) -> Question:
    """Returns a chain whose last bond is not stated for the person reached, so that nothing beyond
    it is known."""
    start = ask.rng.randrange(len(line.bonds) - hops + 2)
    reached = start + hops - 1
    bonds = line.bonds[start:reached]
    # A tutor may be called a teacher: whoever has one is asked for a lawyer. The last of a line has
    # neither.
    at_end = reached == len(line.bonds)
    stated = ask.rng.choice((LAWYER, None)) if at_end else line.bonds[reached]
    missing = ask.rng.choice(TEACHERS) if stated is LAWYER else LAWYER
    phrase = _subject_phrase([*bonds, missing], line.people[start])
    return ask.unknown_forward(line.attribute, phrase)


HOPS = Task(
    name="hops",
    version="3.1.0",
    description="Chains of one to four relations between people, with the bridging mentions known",
    make=make,
    chances=(0.3, 0.3, 0.4, 9.8, 8.7, 8.3),
    contexts={"quick": 12, "paper": 100},
    paper="arXiv 2603.01426",
    questions_per_context=16,
)
