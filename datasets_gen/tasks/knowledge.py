"""Task ``knowledge``: slot-filled biographies, and questions that read, transform or put together
what they say."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, permutations, product

from datasets_gen.examples.example import AnswerType, Direction, Question, QuestionType, Span
from datasets_gen.examples.lexicon import draw_people, draw_values, lexicon
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import QuestionText, Wording, read_phrasings
from datasets_gen.writing.passage import (
    ATTRIBUTES,
    RELATIONS,
    Fact,
    Passage,
    Relation,
    StatedFact,
    write_passage,
)
from datasets_gen.writing.questions import (
    Asker,
    answerable,
    draw_of_kinds,
    forward_question,
    reverse_question,
    unanswerable,
)

SLOTS = tuple(r for r in ATTRIBUTES if r.name in ("birthday", "home", "job", "employer", "pet"))
_SLOTS_BY_NAME = {slot.name: slot for slot in SLOTS}
BIRTHDAY, EMPLOYER = _SLOTS_BY_NAME["birthday"], _SLOTS_BY_NAME["employer"]
# Not functional: a person plays up to three, and several people may play the same.
PLAYS = RELATIONS["plays"]
# Questions for what is worked out of several values, or of a part of one.
DERIVED = read_phrasings("derived")
NUMBER_WORDS = ("zero", "one", "two", "three")


@dataclass(frozen=True)
class KnowledgeSize:
    """A level of difficulty. Employers are shared where people are counted."""

    people: tuple[int, int]  # fewest and most, as below
    slots: tuple[int, int]  # of each
    pool: int  # slots that they are from
    instruments: tuple[int, int]  # of each
    types: tuple[QuestionType, ...]  # of the questions, as often as they stand here
    phrasings: int  # in use


STANDARD: tuple[QuestionType, ...] = ("standard",)
WORKED_OUT: tuple[QuestionType, ...] = (*STANDARD * 2, "manipulated")
EVERY_TYPE: tuple[QuestionType, ...] = (*STANDARD * 10, *("manipulated",) * 5, *("part",) * 3)
# First the slot alone tells the answer, then the name alone, then both are needed; then what has to
# be worked out, what has to be put together, and all of the task.
SIZES = (
    KnowledgeSize((1, 1), (2, 4), 5, (0, 1), STANDARD, 1),
    KnowledgeSize((2, 3), (1, 1), 1, (0, 0), STANDARD, 1),
    KnowledgeSize((2, 2), (2, 3), 4, (1, 1), STANDARD, 1),
    KnowledgeSize((2, 2), (3, 4), 4, (1, 1), WORKED_OUT, 3),
    KnowledgeSize((2, 2), (3, 4), 4, (1, 3), EVERY_TYPE, 3),
    KnowledgeSize((2, 3), (4, 5), 5, (1, 3), EVERY_TYPE, 3),
)
UNANSWERABLE_SHARE = 0.1
INSTRUMENTS_IN_USE = 8  # few enough that people often play the same


@dataclass(frozen=True)
class Lives:
    """Holds what the passage says of each person."""

    people: list[str]
    stranger: str  # a name that it does not say
    slots: list[Relation]
    unmentioned: dict[str, str]  # a value that it does not say, by relation
    passage: Passage
    single: list[StatedFact]  # of the slots, the facts whose value stands nowhere else
    unshared: list[StatedFact]  # of all relations

    def of(self, relation: Relation) -> list[StatedFact]:
        return [s for s in self.passage.facts if s.fact.relation is relation]

    def played_by(self, person: str) -> list[StatedFact]:
        """Lists what the passage says that a person plays."""
        return [s for s in self.of(PLAYS) if s.fact.subject == person]

    def others_than(self, person: str) -> list[str]:
        return [other for other in self.people if other != person]

    def gap(self, rng: random.Random, relations: Sequence[Relation]) -> tuple[Relation, str]:
        """Draws a relation, and someone of whom it is not stated: half of the time a person of the
        passage, if there is one, else a stranger."""
        stated = {(s.fact.relation.name, s.fact.subject) for s in self.passage.facts}
        gaps = []
        for relation, person in product(relations, self.people):
            if (relation.name, person) not in stated:
                gaps.append((relation, person))
        if gaps and rng.random() < 0.5:
            return rng.choice(gaps)
        return rng.choice(relations), self.stranger


def make(rng: random.Random, request: Request) -> Draft:
    size = SIZES[request.level]
    wording = Wording(size.phrasings, request.held_out)
    lives = _lives(rng, request, size, wording)
    ask = Asker(rng, wording)
    # The drawing ends only when there are so many that differ: each of these can be asked.
    possible = len(lives.single) + len(lives.unshared) + len(lives.people) * ("part" in size.types)

    def draw(kind: QuestionType, missing: bool) -> Question | None:
        question = rng.choice(MAKERS[kind])(ask, lives, missing)
        return question and replace(question, type=kind)

    questions = draw_of_kinds(
        rng, min(request.questions, possible), size.types, UNANSWERABLE_SHARE, draw
    )
    return Draft(lives.passage.text, lives.passage.stated(), questions)


def _lives(rng: random.Random, request: Request, size: KnowledgeSize, wording: Wording) -> Lives:
    # One more than there are people: the last name, and the last value, is what the text does not
    # say.
    count = rng.randint(*size.people) + 1
    *people, stranger = _drawn_apart(lambda: draw_people(rng, request.split, count), _initials)
    slots = rng.sample(SLOTS, size.pool)
    values: dict[str, list[str]] = {}
    unmentioned: dict[str, str] = {}
    for relation in SLOTS:
        drawn = _drawn_apart(
            partial(draw_values, rng, relation.value_kind, count),
            WORKED_FROM.get(relation.name, str),
        )
        *values[relation.name], unmentioned[relation.name] = drawn
    if (
        "part" in size.types
    ):  # one to three of the people, as many as there are at most, work for the same
        employers = values["employer"]
        together = min(len(employers), rng.randint(1, 3))
        employers[:together] = employers[:1] * together
        # Or whoever works together would always stand first.
        rng.shuffle(employers)
    *instruments, unmentioned["plays"] = rng.sample(lexicon().instrument, INSTRUMENTS_IN_USE + 1)
    facts: list[Fact] = []
    for number, person in enumerate(people):
        of_person = []
        # Each person has slots of the same pool: the kind of a value does not tell whose it is.
        for r in rng.sample(slots, rng.randint(*size.slots)):
            of_person.append(Fact(r, person, values[r.name][number]))
        played = rng.sample(instruments, rng.randint(*size.instruments))
        facts += _in_order(
            rng, of_person, [Fact(PLAYS, person, instrument) for instrument in played]
        )
    passage = write_passage(rng, facts, wording)
    # A value of two people answers no reverse question, and an instrument no forward one, as a
    # person may play several.
    times = Counter((s.fact.relation.name, s.fact.value) for s in passage.facts)
    unshared, single = [], []
    for s in passage.facts:
        if times[s.fact.relation.name, s.fact.value] == 1:
            unshared.append(s)
            if s.fact.relation is not PLAYS:
                single.append(s)
    return Lives(people, stranger, slots, unmentioned, passage, single, unshared)


def _drawn_apart(draw: Callable[[], list[str]], worked_out: Callable[[str], str]) -> list[str]:
    """Draws until no word worked out of one value is one of another, or a confused answer would be
    half right."""
    while True:
        values = draw()
        words: list[str] = []
        for value in values:
            words += set(worked_out(value).split())
        if len(set(words)) == len(words):
            return values


def _in_order(rng: random.Random, slots: list[Fact], played: list[Fact]) -> list[Fact]:
    """Returns the facts about a person in random order, the instruments not all next to each other:
    that is what makes a question about them one about several places."""
    facts = slots + played
    while True:
        rng.shuffle(facts)
        places = [place for place, fact in enumerate(facts) if fact.relation is PLAYS]
        if len(places) < 2 or places[-1] - places[0] >= len(places):
            return facts


def _spans(stated: Sequence[StatedFact], direction: Direction) -> tuple[Span, ...]:
    """Returns the statements, and what in each of them is given and what is looked for."""
    spans: list[Span] = []
    for s in stated:
        answer, asked_about = s.value, s.subject
        if direction == "reverse":
            answer, asked_about = s.subject, s.value
        spans += (answer.as_a("answer"), asked_about.as_a("subject"), s.sentence)
    return tuple(spans)


def _derived_question(
    text: QuestionText,
    golds: tuple[str, ...],
    answer_type: AnswerType,
    direction: Direction,
    stated: Sequence[StatedFact],
    others: Iterable[tuple[str, ...]] = (),
) -> Question:
    """Returns a question whose answer is worked out of, or put together from, these statements;
    ``others`` would be the golds for somebody else."""
    question = answerable(
        text, golds[0], answer_type, direction, _spans(stated, direction), hops=len(stated)
    )
    return replace(question, golds=golds, others=tuple(chain.from_iterable(others)))


def _forward(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    if missing:
        relation, person = lives.gap(ask.rng, lives.slots)
        return ask.unknown_forward(relation, person)
    return forward_question(ask, ask.rng.choice(lives.single))


def _reverse(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    if not lives.unshared:
        return None
    stated = ask.rng.choice(lives.unshared)
    if missing:
        relation = stated.fact.relation
        return ask.unknown_reverse(relation, lives.unmentioned[relation.name])
    return reverse_question(ask, stated)


def _decade(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    template = ask.choose(DERIVED["decade"])
    born = lives.of(BIRTHDAY)
    if missing:
        _, person = lives.gap(ask.rng, [BIRTHDAY])
        return unanswerable(template.format(subject=person), "date", "forward")
    if not born:
        return None
    stated = ask.rng.choice(born)
    text = template.format(subject=stated.fact.subject)
    golds = (_name_decade(stated.fact.value),)
    others = [(_name_decade(s.fact.value),) for s in born if s is not stated]
    return _derived_question(text, golds, "date", "forward", [stated], others)


def _older(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    """Asks which of two is older. No two were born in the same year, or there would be no
    telling."""
    born = lives.of(BIRTHDAY)
    if len(born) < 2:
        return None
    first, second = ask.rng.sample(born, 2)
    names = [first.fact.subject, second.fact.subject]
    if missing:
        _, names[1] = lives.gap(ask.rng, [BIRTHDAY])
    # Or the place of a name would tell that it is the unknown one.
    ask.rng.shuffle(names)
    text = ask.choose(DERIVED["older"]).format(first=names[0], second=names[1])
    if missing:
        return unanswerable(text, "person", "forward")
    older = min(first, second, key=lambda stated: _year(stated.fact.value)).fact.subject
    return _derived_question(text, (older,), "person", "forward", [first, second])


def _year(date: str) -> int:
    return int(date.split()[-1])


def _name_decade(date: str) -> str:
    return f"{_year(date) // 10}0s"


def _employer_initials(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    template = ask.choose(DERIVED["employer_initials"])
    if missing:
        _, person = lives.gap(ask.rng, [EMPLOYER])
        return unanswerable(template.format(subject=person), "organisation", "forward")
    employed = lives.of(EMPLOYER)
    scorable = [s for s in employed if _has_initials(s.fact.value)]
    if not scorable:
        return None
    stated = ask.rng.choice(scorable)
    employer = stated.fact.value
    text = template.format(subject=stated.fact.subject)
    other_employers = dict.fromkeys(s.fact.value for s in employed if s.fact.value != employer)
    golds = _write_initials(employer)
    others = map(_write_initials, other_employers)
    return _derived_question(text, golds, "organisation", "forward", [stated], others)


def _person_initials(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    scorable = [s for s in lives.unshared if _has_initials(s.fact.subject)]
    if not scorable:
        return None
    stated = ask.rng.choice(scorable)
    relation, person = stated.fact.relation, stated.fact.subject
    value = lives.unmentioned[relation.name] if missing else stated.fact.value
    clause = relation.clause.format(value=value)
    text = ask.choose(DERIVED["person_initials"]).format(clause=clause)
    if missing:
        return unanswerable(text, "person", "reverse")
    others = map(_write_initials, lives.others_than(person))
    return _derived_question(text, _write_initials(person), "person", "reverse", [stated], others)


def _initials(name: str) -> str:
    return " ".join(word[0] for word in name.split())


def _write_initials(name: str) -> tuple[str, str]:
    """Writes initials as golds: apart and together, with and without full stops."""
    return _initials(name), _initials(name).replace(" ", "")


def _has_initials(name: str) -> bool:
    """Tells whether the initials of a name can be scored: F1 drops articles, and an A is one; and
    an I would make "I don't know" right by 40 %."""
    return {"A", "I"}.isdisjoint(_initials(name))


def _instruments(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    if missing:
        # Where this is asked everybody of the text plays something.
        return ask.unknown_forward(PLAYS, lives.stranger)
    person = ask.rng.choice(lives.people)
    text = ask.forward(PLAYS, person)
    played = lives.played_by(person)
    golds = _lists(lives, person)
    others = map(partial(_lists, lives), lives.others_than(person))
    return _derived_question(text, golds, "thing", "forward", played, others)


def _lists(lives: Lives, person: str) -> tuple[str, ...]:
    """Writes what a person plays, in every order, such as "cello, flute and harp"."""
    played = [s.fact.value for s in lives.played_by(person)]
    # A list is right in any order, and so each order is a gold.
    lists = []
    for *before, last in permutations(played):
        text = f"{', '.join(before)} and {last}" if before else last
        lists.append(text)
    return tuple(lists)


def _repertoire(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    person = lives.stranger if missing else ask.rng.choice(lives.people)
    text = ask.choose(DERIVED["repertoire"]).format(subject=person)
    if missing:
        return unanswerable(text, "numeral", "forward")
    played = lives.played_by(person)
    others = Counter(s.fact.subject for s in lives.of(PLAYS) if s not in played)
    return _derived_question(
        text, _count(len(played)), "numeral", "forward", played, map(_count, others.values())
    )


def _staff(ask: Asker, lives: Lives, missing: bool) -> Question | None:
    """Asks who works somewhere. It is never unanswerable: of an organisation that is not mentioned
    one could say that none of these people work for it."""
    employed = lives.of(EMPLOYER)
    if missing or not employed:
        return None
    employer = ask.rng.choice(employed).fact.value
    staff = [s for s in employed if s.fact.value == employer]
    text = ask.choose(DERIVED["staff"]).format(value=employer)
    others = Counter(s.fact.value for s in employed if s not in staff)
    return _derived_question(
        text, _count(len(staff)), "numeral", "reverse", staff, map(_count, others.values())
    )


def _count(number: int) -> tuple[str, ...]:
    return str(number), NUMBER_WORDS[number]


# What is asked of a value besides the value itself.
WORKED_FROM: Mapping[str, Callable[[str], str]] = {
    "birthday": lambda date: f"{date} {_name_decade(date)}",
    "employer": lambda name: f"{name} {_initials(name)}",
}
MAKERS: dict[QuestionType, tuple[Callable[[Asker, Lives, bool], Question | None], ...]] = {
    "standard": (_forward, _forward, _forward, _reverse, _reverse),
    "manipulated": (_decade, _older, _employer_initials, _person_initials),
    "part": (_instruments, _repertoire, _staff),
}

KNOWLEDGE = Task(
    name="knowledge",
    version="2.1.0",
    description="Biographies of two or three people: questions that read, transform or put together what they say",
    make=make,
    chances=(9.7, 10.9, 10.4, 11.5, 14.7, 15.1),
    contexts={"quick": 12, "paper": 4000},
    paper="arXiv 2603.01426",
    questions_per_context=13,
)
