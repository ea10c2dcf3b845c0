"""What a generated example is: a context, the questions about it, and where in the context each answer lives."""

from dataclasses import dataclass
from typing import Literal

SpanKind = Literal["answer", "subject", "fact", "bridge"]
Split = Literal["train", "test"]
Direction = Literal["forward", "reverse"]
AnswerType = Literal["person", "thing", "organisation", "creature", "location", "numeral", "date", "event"]


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``[start, end)`` of the context, and what they are.

    ``answer``: the value asked for. ``subject``: the mention the question starts from. ``fact``: the whole
    sentence that states the answer. ``bridge``: a whole sentence that must be read on the way to it.
    """

    kind: SpanKind
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """One question about a context.

    ``spans`` is empty for an unanswerable question: nothing in the context carries its answer.
    ``hops`` is the number of facts that have to be read, 0 when the question cannot be answered. ``bridges`` are the
    names found on the way to the answer, in order: one less than the facts.
    """

    id: str
    text: str
    golds: tuple[str, ...]
    answerable: bool
    direction: Direction
    answer_type: AnswerType
    hops: int
    spans: tuple[Span, ...]
    bridges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """A context and its questions. ``stated_values`` are all values that the context states about anything:
    a wrong answer that is one of them is a confusion and not a fabrication."""

    id: str
    task: str
    split: Split
    index: int
    context: str
    stated_values: tuple[str, ...]
    questions: tuple[Question, ...]
