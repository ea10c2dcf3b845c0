"""Questions about a passage of facts, answerable and not."""

import random
from dataclasses import dataclass

from datasets_gen.example import AnswerType, Direction, Question, Span
from datasets_gen.passage import StatedFact
from datasets_gen.relations import Relation
from datasets_gen.task import ABSTENTION


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
    """Draws questions in the first ``phrasings`` of each relation."""

    rng: random.Random
    phrasings: int

    def forward(self, relation: Relation, subject: str) -> str:
        return self.rng.choice(relation.forward[: self.phrasings]).format(subject=subject)

    def reverse(self, relation: Relation, value: str) -> str:
        return self.rng.choice(relation.reverse[: self.phrasings]).format(value=value)


def forward_question(ask: Asker, stated: StatedFact) -> Question:
    """Given the subject, asks for the value."""
    fact = stated.fact
    spans = (stated.value, stated.subject, stated.sentence)
    text = ask.forward(fact.relation, fact.subject)
    return answerable(text, fact.value, fact.relation.value_type, "forward", spans)


def reverse_question(ask: Asker, stated: StatedFact) -> Question:
    """Given the value, asks for the subject: the two mentions swap their parts."""
    fact = stated.fact
    answer = Span("answer", stated.subject.start, stated.subject.end)
    subject = Span("subject", stated.value.start, stated.value.end)
    text = ask.reverse(fact.relation, fact.value)
    return answerable(text, fact.subject, fact.relation.subject_type, "reverse", (answer, subject, stated.sentence))
