"""Questions about a passage of facts, answerable and not."""

import random
from dataclasses import dataclass

from datasets_gen.example import AnswerType, Direction, Question, Span
from datasets_gen.passage import StatedFact
from datasets_gen.relations import Relation
from datasets_gen.task import ABSTENTION
from datasets_gen.wording import Wording


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
