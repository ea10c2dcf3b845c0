"""Task ``hops``: chains of one to four facts, such as "Where does the mentor of the teacher of X live?"."""

import random
from dataclasses import dataclass

from datasets_gen.example import Question
from datasets_gen.lexicon import draw_people, draw_values
from datasets_gen.passage import Fact, Passage, StatedFact, write_passage
from datasets_gen.questions import Asker, answerable, draw_different, forward_question, reverse_question
from datasets_gen.relations import BESIDE_BONDS, LAWYER, TEACHERS, Relation
from datasets_gen.task import Draft, Task, Wanted
from datasets_gen.wording import Phrasings, Wording

# (fewest, most) people, the longest chain, and phrasings in use, by level; the last is the task.
SIZES = (
    ((2, 2), 1, 1),
    ((2, 3), 1, 1),
    ((3, 3), 2, 1),
    ((3, 3), 2, 3),
    ((3, 4), 3, 3),
    ((5, 6), 4, 3),
)
UNANSWERABLE_SHARE = 0.1
REVERSE_SHARE = 0.25
# Where chains begin, all questions are forward and answerable: chains are not learned while what is easier pays.
CHAINS_LEVEL = 2
WHOSE = Phrasings(("Whose {bond} {clause}?",), ("Who has a {bond} who {clause}?",))


@dataclass(frozen=True)
class Ring:
    """Each person is bound to the next, the last to the first, so that every bond is unambiguous both ways."""

    people: list[str]
    bonds: list[Relation]
    attribute: Relation
    passage: Passage

    def bond_from(self, position: int) -> StatedFact:
        position %= len(self.people)
        return self.passage.find(self.bonds[position].name, self.people[position])

    def attribute_of(self, position: int) -> StatedFact:
        return self.passage.find(self.attribute.name, self.people[position % len(self.people)])


def make(rng: random.Random, wanted: Wanted) -> Draft:
    people_range, longest, phrasings = SIZES[wanted.level]
    wording = Wording(phrasings, wanted.held_out)
    ask = Asker(rng, wording)
    people = draw_people(rng, wanted.split, rng.randint(*people_range))
    # As often a lawyer as a teacher of some kind: a question for what is not stated names them as often as others do.
    bonds = [rng.choice((LAWYER, rng.choice(TEACHERS))) for _ in people]
    attribute = rng.choice(BESIDE_BONDS)
    values = draw_values(rng, attribute.value_kind, len(people))
    facts = [Fact(bond, one, other) for bond, one, other in zip(bonds, people, people[1:] + people[:1], strict=True)]
    facts += [Fact(attribute, person, value) for person, value in zip(people, values, strict=True)]
    rng.shuffle(facts)
    ring = Ring(people, bonds, attribute, write_passage(rng, facts, wording))
    unanswerable_share = UNANSWERABLE_SHARE if wanted.level > CHAINS_LEVEL else 0.0
    reverse_share = 0.0 if wanted.level == CHAINS_LEVEL else REVERSE_SHARE
    count = min(wanted.questions, 2 * len(facts))
    questions = draw_different(count, lambda: _question(ask, ring, longest, unanswerable_share, reverse_share))
    return Draft(ring.passage.text, ring.passage.stated_values(), questions)


def _question(ask: Asker, ring: Ring, longest: int, unanswerable_share: float, reverse_share: float) -> Question:
    hops = ask.rng.randint(1, longest)
    start = ask.rng.randrange(len(ring.people))
    if ask.rng.random() < unanswerable_share:
        return _broken_chain(ask, ring, hops, start)
    if ask.rng.random() < reverse_share:
        return _reverse(ask, ring, min(hops, 2), start)
    if hops == 1:
        return forward_question(ask, ask.rng.choice(ring.passage.facts))
    return _forward_chain(ask, ring, hops, start)


def _subject_phrase(bonds: list[Relation], person: str) -> str:
    """Such as "the teacher of the mentor of X" for bonds (mentor, teacher) starting from X."""
    phrase = person
    for bond in bonds:
        phrase = f"the {bond.name} of {phrase}"
    return phrase


def _forward_chain(ask: Asker, ring: Ring, hops: int, start: int) -> Question:
    """``hops - 1`` bonds from ``start``, then an attribute or one more bond of the person reached."""
    links = [ring.bond_from(start + step) for step in range(hops - 1)]
    last = ring.attribute_of(start + hops - 1) if ask.rng.random() < 0.7 else ring.bond_from(start + hops - 1)
    phrase = _subject_phrase([link.fact.relation for link in links], links[0].fact.subject)
    spans = (last.value, links[0].subject, last.sentence, *(link.sentence.as_a("bridge") for link in links))
    relation = last.fact.relation
    text = ask.forward(relation, phrase)
    bridges = tuple(link.fact.value for link in links)
    return answerable(text, last.fact.value, relation.value_type, "forward", spans, bridges)


def _reverse(ask: Asker, ring: Ring, hops: int, start: int) -> Question:
    """From a value to its person, and for two hops on to the one whose bond that person is."""
    if hops == 1:
        return reverse_question(ask, ask.rng.choice(ring.passage.facts))
    last = ring.bond_from(start)
    link = ring.attribute_of(start + 1)
    bond, clause = last.fact.relation.name, link.fact.relation.clause.format(value=link.fact.value)
    answer, subject = last.subject.as_a("answer"), link.value.as_a("subject")
    spans = (answer, subject, last.sentence, link.sentence.as_a("bridge"))
    text = ask.wording.choose(ask.rng, WHOSE).format(bond=bond, clause=clause)
    return answerable(text, last.fact.subject, "person", "reverse", spans, (link.fact.subject,))


def _broken_chain(ask: Asker, ring: Ring, hops: int, start: int) -> Question:
    """A chain whose last bond is not stated for the person reached, so that nothing beyond it is known."""
    known = [ring.bond_from(start + step).fact.relation for step in range(hops - 1)]
    stated = ring.bonds[(start + hops - 1) % len(ring.people)]
    missing = ask.rng.choice(TEACHERS) if stated is LAWYER else LAWYER
    return ask.unknown_forward(ring.attribute, _subject_phrase([*known, missing], ring.people[start]))


HOPS = Task(
    name="hops",
    version="2.0.0",
    description="Chains of one to four relations between people, with the bridging mentions known",
    make=make,
    top_level=len(SIZES) - 1,
    chance=7.8,
    contexts={"quick": 8, "paper": 100},
    questions_per_context=16,
)
