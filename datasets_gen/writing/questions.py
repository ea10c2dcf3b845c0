"""Asks questions about a passage of facts, answerable and not."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from datasets_gen.examples.example import AnswerType, Direction, Question, Span, Split
from datasets_gen.examples.lexicon import draw_people, draw_unmentioned
from datasets_gen.examples.task import ABSTENTION, Request
from datasets_gen.examples.wording import Phrasings, QuestionText, Wording
from datasets_gen.writing.passage import Passage, Relation, StatedFact, said_relations

Kind = TypeVar("Kind", bound=str)
ATTEMPTS = 8  # at a question of a kind that was not asked before


def answerable(
    question: QuestionText,
    answer: str,
    answer_type: AnswerType,
    direction: Direction,
    spans: tuple[Span, ...],
    bridges: tuple[str, ...] = (),
    hops: int | None = None,  # by default one more than the bridges
) -> Question:
    hops = len(bridges) + 1 if hops is None else hops
    text, prefix = question.text, question.answer_prefix
    return Question(
        "",
        text,
        (answer,),
        True,
        direction,
        answer_type,
        hops,
        spans,
        bridges,
        answer_prefix=prefix,
    )


def unanswerable(question: QuestionText, answer_type: AnswerType, direction: Direction) -> Question:
    """Returns a question that nothing answers. Its answer prefix is that of half of the others: it
    does not tell."""
    text, prefix = question.text, question.answer_prefix
    return Question(
        "", text, (ABSTENTION,), False, direction, answer_type, 0, (), answer_prefix=prefix
    )


@dataclass(frozen=True)
class Asker:
    """Draws questions in a wording."""

    rng: random.Random
    wording: Wording

    def choose(self, phrasings: Phrasings) -> QuestionText:
        return self.wording.choose_question(self.rng, phrasings)

    def forward(self, relation: Relation, subject: str) -> QuestionText:
        return self.choose(relation.forward).format(subject=subject)

    def reverse(self, relation: Relation, value: str) -> QuestionText:
        clause = relation.clause.format(value=value)
        return replace(
            self.choose(relation.reverse).format(value=value),
            answer_prefix=f"The person who {clause} is",
        )

    def unknown_forward(self, relation: Relation, subject: str) -> Question:
        return unanswerable(self.forward(relation, subject), relation.value_type, "forward")

    def unknown_reverse(self, relation: Relation, value: str) -> Question:
        return unanswerable(self.reverse(relation, value), "person", "reverse")


def draw_different(count: int, draw: Callable[[], Question]) -> tuple[Question, ...]:
    """Draws ``count`` questions of which no two read the same: no more than ``draw`` can give."""
    questions: dict[str, Question] = {}
    while len(questions) < count:
        question = draw()
        questions.setdefault(question.text, question)
    return tuple(questions.values())


def forward_question(ask: Asker, stated: StatedFact) -> Question:
    """Asks for the value, given the subject."""
    fact = stated.fact
    spans = (stated.value, stated.subject, stated.sentence)
    text = _begun(
        ask.forward(fact.relation, fact.subject), stated.statement, "value", subject=fact.subject
    )
    return answerable(text, fact.value, fact.relation.value_type, "forward", spans)


def reverse_question(ask: Asker, stated: StatedFact) -> Question:
    """Asks for the subject, given the value: the two mentions swap their parts."""
    fact = stated.fact
    spans = (stated.subject.as_a("answer"), stated.value.as_a("subject"), stated.sentence)
    text = _begun(
        ask.reverse(fact.relation, fact.value), stated.statement, "subject", value=fact.value
    )
    return answerable(text, fact.subject, "person", "reverse", spans)


def _begun(question: QuestionText, statement: str, asked: str, **given: str) -> QuestionText:
    """Begins the answer as its statement begins, where that ends with what is asked for."""
    # Only a sentence that ends with the answer can be begun: "Velden is where ..." cannot.
    before = statement.removesuffix(f" {{{asked}}}.")
    if before == statement:
        return question
    return replace(question, answer_prefix=QuestionText("", before).format(**given).answer_prefix)


def draw_of_kinds(
    rng: random.Random,
    count: int,
    kinds: Sequence[Kind],
    missing_share: float,
    draw: Callable[[Kind, bool], Question | None],
) -> tuple[Question, ...]:
    """Draws ``count`` questions of which no two read the same, each of a kind that is drawn first.
    ``draw`` makes one of a kind, with or without an answer, or none."""
    questions: dict[str, Question] = {}
    while len(questions) < count:
        # Together and before a fact is chosen, so that of every kind the same share has no answer.
        kind, missing = rng.choice(kinds), rng.random() < missing_share
        # Again of the same kind where it was asked before, or the kinds with few questions would
        # become rare.
        for _ in range(ATTEMPTS):
            question = draw(kind, missing)
            if question is not None and question.text not in questions:
                questions[question.text] = question
                break
    return tuple(questions.values())


def attribute_questions(
    ask: Asker, request: Request, passage: Passage, unanswerable_share: float, reverse_share: float
) -> tuple[Question, ...]:
    """Draws questions about attributes, in either direction, some of them unanswerable."""

    def draw() -> Question:
        if ask.rng.random() < unanswerable_share:
            return _unanswerable_attribute(ask, request.split, passage)
        stated = ask.rng.choice(passage.facts)
        return (reverse_question if ask.rng.random() < reverse_share else forward_question)(
            ask, stated
        )

    # No more than there certainly are, or the drawing would not end: each fact, in both directions.
    return draw_different(min(request.questions, 2 * len(passage.facts)), draw)


def _unanswerable_attribute(ask: Asker, split: Split, passage: Passage) -> Question:
    """Asks for a person or a value that the passage does not mention, or for what it says of others
    and not of this person: what it says of nobody would tell by itself that there is no answer."""
    rng = ask.rng
    # A quarter asks for a value, a quarter for a stranger, and half for what others have.
    kind = rng.randrange(4)
    stated = rng.choice(passage.facts)
    relation, person = stated.fact.relation, stated.fact.subject
    if kind == 0:
        mentioned = {s.fact.value for s in passage.facts}
        return ask.unknown_reverse(relation, draw_unmentioned(rng, relation.value_kind, mentioned))
    # With what is implied: who keeps a heron may be said to own something.
    known = said_relations(person, (s.fact for s in passage.facts))
    # A dict keeps the order of the text, where a set has another one in each process.
    of_others = {}
    for s in passage.facts:
        if s.fact.relation.name not in known:
            of_others[s.fact.relation.name] = s.fact.relation
    if kind == 1 or not of_others:
        people = {s.fact.subject for s in passage.facts}
        # Of one more name than there are people, one is a stranger.
        stranger = next(
            name for name in draw_people(rng, split, len(people) + 1) if name not in people
        )
        return ask.unknown_forward(relation, stranger)
    return ask.unknown_forward(rng.choice(list(of_others.values())), person)
