"""Task ``multi_entity``: linked people with near-identical names and the same kinds of
attributes."""

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from datasets_gen.examples.example import Question, Split
from datasets_gen.examples.lexicon import draw_unmentioned, full_names, lexicon
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.passage import (
    BESIDE_BONDS,
    LAWYER,
    TEACHERS,
    Fact,
    Passage,
    Relation,
    StatedFact,
    deal_facts,
    draw_relations,
    write_passage,
)
from datasets_gen.writing.questions import (
    Asker,
    answerable,
    draw_different,
    forward_question,
    reverse_question,
)

# (fewest, most) people, attributes of each and links, and phrasings in use, by level; the last is
# the task. First the relation alone tells the answer, then the name alone, then both are needed,
# then links.
SIZES = (
    ((1, 1), (2, 3), (0, 0), 1),
    ((2, 3), (1, 1), (0, 0), 1),
    ((2, 3), (2, 2), (0, 0), 1),
    ((3, 3), (1, 2), (2, 2), 1),
    ((3, 4), (2, 3), (1, 2), 3),
    ((4, 5), (2, 3), (2, 3), 3),
)
# Of each kind of question: the kind does not tell whether there is an answer.
UNANSWERABLE_SHARE = 0.11
LINK_SHARE = 0.25
LACKED = 0.6  # of the attributes but one, how often somebody has none
REVERSE_SHARE = 0.3
STEM = 3  # letters that the family names of a context have in common
ATTEMPTS = 16  # at completing a set of people, before another is begun

Name = tuple[str, str]  # given and family name

# --- names that are easily taken for one another


def alike(one: str, other: str) -> bool:
    """Tells whether two given names begin alike ("Mina", "Milan") or rhyme ("Edda", "Hedda";
    "Nora", "Lara").

    Common beginnings, and names one letter apart, would be the closer rule, but leave the test
    split about a thousand sets of four people and few of three or five; this one leaves more than
    ten thousand of four."""
    ending = 2 if len(one) == len(other) else 3
    return one[:2] == other[:2] or one[-ending:].lower() == other[-ending:].lower()


@dataclass(frozen=True)
class Namesakes:
    """Names of a split whose families have a stem in common."""

    families: int  # how many
    names: tuple[Name, ...]
    pairs: tuple[tuple[Name, Name], ...]  # whose given names are alike, and which share no word
    partners: Mapping[Name, tuple[Name, ...]]  # the names that a name makes a pair with


@cache
def namesakes(split: Split) -> Mapping[str, Namesakes]:
    """Groups namesakes by stem, where there is a pair."""
    by_stem: dict[str, list[Name]] = defaultdict(list)
    for name in full_names(split):
        by_stem[name[1][:STEM]].append(name)
    groups = {}
    for stem, names in by_stem.items():
        partners: dict[Name, tuple[Name, ...]] = {}
        pairs: list[tuple[Name, Name]] = []
        for name in names:
            alike_names = _alikes()[name[0]]
            others = [n for n in names if n[0] in alike_names and n[1] != name[1]]
            if others:
                partners[name] = tuple(others)
            for other in others:
                # Each is a partner of the other: the pair is listed once.
                if name < other:
                    pairs.append((name, other))
        if pairs:
            families = {family for _, family in names}
            groups[stem] = Namesakes(len(families), tuple(names), tuple(pairs), partners)
    return groups


@cache
def _alikes() -> Mapping[str, frozenset[str]]:
    """Returns the given names that are alike to each given name."""
    names = lexicon().given
    alikes = {}
    for name in names:
        others = [other for other in names if other != name and alike(name, other)]
        alikes[name] = frozenset(others)
    return alikes


@cache
def _pairs(split: Split, families: int) -> tuple[tuple[Name, Name], ...]:
    pairs: list[tuple[Name, Name]] = []
    for group in namesakes(split).values():
        # No two people share a family name, so that a stem needs as many families as people.
        if group.families >= families:
            pairs += group.pairs
    return tuple(pairs)


def draw_namesakes(rng: random.Random, split: Split, count: int) -> list[Name]:
    """Draws ``count`` names of one stem that share no word; the given name of each is alike to that
    of another."""
    begun = _pairs(split, count)
    while True:
        # A single person is half of a pair: somebody can be taken for this one too.
        people = list(rng.choice(begun)[:count])
        group = namesakes(split)[people[0][1][:STEM]]
        for _ in range(ATTEMPTS):
            if len(people) == count:
                return people
            more: tuple[Name, ...]
            if len(people) == count - 1:  # a pair would be too many
                more = (rng.choice(group.partners[rng.choice(people)]),)
            else:
                more = rng.choice(group.pairs)
            # Anew in each attempt, as the last one may have added people.
            used_given = {given for given, _ in people}
            used_families = {family for _, family in people}
            if all(
                given not in used_given and family not in used_families for given, family in more
            ):
                people += more


def draw_lookalike(rng: random.Random, split: Split, people: list[Name]) -> Name:
    """Draws a name like that of one of the people and none of theirs; it may share one of its words
    with each."""
    names = namesakes(split)[people[0][1][:STEM]].names
    given_name = rng.choice(people)[0]
    alike_names = {given_name, *_alikes()[given_name]}
    free, likest = [], []
    for name in names:
        if name not in people:
            free.append(name)
            if name[0] in alike_names:
                likest.append(name)
    return rng.choice(likest or free)


# --- the passage


@dataclass(frozen=True)
class Circle:
    """The people of a context, and the passage about them."""

    split: Split
    names: list[Name]
    people: list[str]
    links: list[Fact]
    gaps: list[tuple[Relation, str]]  # an attribute of others, and who has none
    passage: Passage

    def attributes(self) -> list[StatedFact]:
        return [stated for stated in self.passage.facts if stated.fact not in self.links]


def make(rng: random.Random, request: Request) -> Draft:
    people_range, attributes_range, links_range, phrasings = SIZES[request.level]
    wording = Wording(phrasings, request.held_out)
    names = draw_namesakes(rng, request.split, rng.randint(*people_range))
    people = list(map(" ".join, names))
    attributes = draw_relations(rng, BESIDE_BONDS, rng.randint(*attributes_range))
    links = _draw_links(rng, people, rng.randint(*links_range))
    gaps: list[tuple[Relation, str]] = []
    if len(attributes) > 1:
        gaps = _draw_gaps(rng, attributes, people)
    attributes_by_person = []
    for person in people:
        stated = [attribute for attribute in attributes if (attribute, person) not in gaps]
        attributes_by_person.append(stated)
    facts = [*deal_facts(rng, people, attributes_by_person), *links]
    # Links among attributes, or the place of a sentence would tell which of them it is.
    rng.shuffle(facts)
    passage = write_passage(rng, facts, wording)
    circle = Circle(request.split, names, people, links, gaps, passage)
    ask = Asker(rng, wording)
    # What is drawn until it differs ends only if there are so many: each fact can be asked both
    # ways.
    count = min(request.questions, 2 * len(facts))
    questions = draw_different(count, lambda: _question(ask, circle))
    return Draft(passage.text, passage.stated(), questions)


def _draw_gaps(
    rng: random.Random, attributes: list[Relation], people: list[str]
) -> list[tuple[Relation, str]]:
    """Draws one of the people for some of the attributes, another for each, so that nobody lacks
    all of them: what the text says of nobody would tell by itself that there is no answer."""
    without = rng.sample(people, min(len(people) - 1, len(attributes) - 1))
    gaps = []
    for attribute, person in zip(attributes, without, strict=False):
        if rng.random() < LACKED:
            gaps.append((attribute, person))
    return gaps


def _draw_links(rng: random.Random, people: list[str], count: int) -> list[Fact]:
    """Draws bonds between pairs of people: of one kind, each has at most one and is it to at most
    one other.

    They are of two kinds, so that a bond alone seldom tells whose it is; not of more, or two would
    be nearly the same."""
    kinds = (LAWYER, rng.choice(TEACHERS))
    links: list[Fact] = []
    while len(links) < count:
        new = Fact(rng.choice(kinds), *rng.sample(people, 2))
        if not any(_exclude_each_other(link, new) for link in links):
            links.append(new)
    return links


# --- the questions


def _exclude_each_other(link: Fact, other: Fact) -> bool:
    """Tells whether two bonds are between the same people, or are of one kind and start or end at
    the same person."""
    if {link.subject, link.value} == {other.subject, other.value}:
        return True
    shares_end = link.subject == other.subject or link.value == other.value
    return link.relation == other.relation and shares_end


def _question(ask: Asker, circle: Circle) -> Question:
    kind = ask.rng.random()
    answered = ask.rng.random() >= UNANSWERABLE_SHARE
    is_reverse = kind < REVERSE_SHARE
    if circle.links and REVERSE_SHARE <= kind < REVERSE_SHARE + LINK_SHARE:
        if answered:
            return _over_a_link(ask, circle)
        return _over_no_link(ask, circle)
    if not answered:
        if is_reverse:
            return _unknown_value(ask, circle)
        return _unknown_subject(ask, circle)
    stated = ask.rng.choice(circle.passage.facts)
    if is_reverse:
        return reverse_question(ask, stated)
    return forward_question(ask, stated)


def _over_a_link(ask: Asker, circle: Circle) -> Question:
    """Asks such as "Where does the mentor of X live?"."""
    link = ask.rng.choice(circle.links)
    bridge = circle.passage.find(link.relation.name, link.subject)
    # One at least: nobody lacks all attributes.
    about_linked = [s for s in circle.attributes() if s.fact.subject == link.value]
    last = ask.rng.choice(about_linked)
    relation, value = last.fact.relation, last.fact.value
    text = ask.forward(relation, f"the {link.relation.name} of {link.subject}")
    spans = (last.value, bridge.subject, last.sentence, bridge.sentence.as_a("bridge"))
    return answerable(text, value, relation.value_type, "forward", spans, (link.value,))


def _draw_unlinked(rng: random.Random, circle: Circle, has: bool) -> tuple[Relation, str]:
    """Draws a bond of the passage, and one of the people who has none such (``has``), or is it to
    nobody."""
    bond = rng.choice(circle.links).relation
    taken = set()
    for link in circle.links:
        if link.relation == bond:
            taken.add(link.subject if has else link.value)
    return bond, rng.choice([name for name in circle.people if name not in taken])


def _over_no_link(ask: Asker, circle: Circle) -> Question:
    bond, person = _draw_unlinked(ask.rng, circle, has=True)
    attribute = ask.rng.choice(circle.attributes()).fact.relation
    return ask.unknown_forward(attribute, f"the {bond.name} of {person}")


def _unknown_subject(ask: Asker, circle: Circle) -> Question:
    """Asks for an attribute or a bond that the person lacks, or anything of somebody else with such
    a name."""
    rng = ask.rng
    stated = rng.choice(circle.passage.facts).fact
    if rng.random() < 0.5 and stated in circle.links:
        return ask.unknown_forward(*_draw_unlinked(rng, circle, has=True))
    if rng.random() < 0.5 and circle.gaps:
        return ask.unknown_forward(*rng.choice(circle.gaps))
    return ask.unknown_forward(
        stated.relation, " ".join(draw_lookalike(rng, circle.split, circle.names))
    )


def _unknown_value(ask: Asker, circle: Circle) -> Question:
    """Asks for a value that the passage does not state, or a person of it who is this to nobody."""
    stated = ask.rng.choice(circle.passage.facts)
    relation = stated.fact.relation
    if stated.fact in circle.links:
        bond, person = _draw_unlinked(ask.rng, circle, has=False)
        return ask.unknown_reverse(bond, person)
    mentioned = {s.fact.value for s in circle.passage.facts}
    return ask.unknown_reverse(relation, draw_unmentioned(ask.rng, relation.value_kind, mentioned))


MULTI_ENTITY = Task(
    name="multi_entity",
    version="2.1.0",
    description="Four or five people with near-identical names, the same kinds of attributes, and links",
    make=make,
    chances=(20.6, 19.8, 19.4, 15.5, 10.4, 9.6),
    contexts={"quick": 12, "paper": 100},
    paper="arXiv 2603.01426",
    questions_per_context=10,
)
