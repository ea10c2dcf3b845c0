"""Questions about a passage of facts, answerable and not."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from datasets_gen.examples.example import AnswerType, Direction, Question, Span, Split
from datasets_gen.examples.lexicon import draw_stranger, draw_unmentioned
from datasets_gen.examples.task import ABSTENTION
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.passage import Passage, StatedFact, said_of
from datasets_gen.writing.relations import Relation


def answerable(
    text: str,
    answer: str,
    answer_type: AnswerType,
    direction: Direction,
    spans: tuple[Span, ...],
    bridges: tuple[str, ...] = (),
) -> Question:
    return Question("", text, (answer,), True, direction, answer_type, len(bridges) + 1, spans, bridges)


def unanswerable(text: str, answer_type: AnswerType, direction: Direction) -> Question:
    return Question("", text, (ABSTENTION,), False, direction, answer_type, 0, ())


@dataclass(frozen=True)
class Asker:
    """Draws questions in a wording."""

    rng: random.Random
    wording: Wording

    def forward(self, relation: Relation, subject: str) -> str:
        return self.wording.choose(self.rng, relation.forward).format(subject=subject)

    def reverse(self, relation: Relation, value: str) -> str:
        return self.wording.choose(self.rng, relation.reverse).format(value=value)

    def unknown_forward(self, relation: Relation, subject: str) -> Question:
        """A forward question that nothing answers."""
        return unanswerable(self.forward(relation, subject), relation.value_type, "forward")

    def unknown_reverse(self, relation: Relation, value: str) -> Question:
        return unanswerable(self.reverse(relation, value), relation.subject_type, "reverse")


def draw_different(count: int, draw: Callable[[], Question]) -> tuple[Question, ...]:
    """``count`` questions of which no two read the same: no more than ``draw`` can give."""
    asked: dict[str, Question] = {}
    while len(asked) < count:
        question = draw()
        asked.setdefault(question.text, question)
    return tuple(asked.values())


def forward_question(ask: Asker, stated: StatedFact) -> Question:
    """Given the subject, asks for the value."""
    fact = stated.fact
    spans = (stated.value, stated.subject, stated.sentence)
    text = ask.forward(fact.relation, fact.subject)
    return answerable(text, fact.value, fact.relation.value_type, "forward", spans)


def reverse_question(ask: Asker, stated: StatedFact) -> Question:
    """Given the value, asks for the subject: the two mentions swap their parts."""
    fact = stated.fact
    spans = (stated.subject.as_a("answer"), stated.value.as_a("subject"), stated.sentence)
    text = ask.reverse(fact.relation, fact.value)
    return answerable(text, fact.subject, fact.relation.subject_type, "reverse", spans)


def attribute_question(
    ask: Asker, split: Split, passage: Passage, unanswerable_share: float, reverse_share: float
) -> Question:
    """A question about attributes, in either direction, some of them unanswerable."""
    if ask.rng.random() < unanswerable_share:
        return _unanswerable_attribute(ask, split, passage)
    stated = ask.rng.choice(passage.facts)
    return (reverse_question if ask.rng.random() < reverse_share else forward_question)(ask, stated)


def _unanswerable_attribute(ask: Asker, split: Split, passage: Passage) -> Question:
    """A person or a value that the passage does not mention, or what it says of others and not of this person: what it
    says of nobody would tell by itself that there is no answer."""
    rng = ask.rng
    kind = rng.randrange(4)
    stated = rng.choice(passage.facts)
    relation, person = stated.fact.relation, stated.fact.subject
    if kind == 0:
        mentioned = {s.fact.value for s in passage.facts}
        return ask.unknown_reverse(relation, draw_unmentioned(rng, relation.value_kind, mentioned))
    known = said_of(person, (s.fact for s in passage.facts))
    of_others = {s.fact.relation.name: s.fact.relation for s in passage.facts if s.fact.relation.name not in known}
    if kind == 1 or not of_others:
        return ask.unknown_forward(relation, draw_stranger(rng, split, {s.fact.subject for s in passage.facts}))
    return ask.unknown_forward(rng.choice(list(of_others.values())), person)
