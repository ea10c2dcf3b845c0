"""An example is a context, the questions about it, and where in the context each answer lives."""

from dataclasses import dataclass
from typing import Literal

from datasets_gen.examples.directives import Directive

SpanKind = Literal["answer", "subject", "fact", "bridge", "distractor", "defence", "directive"]
Split = Literal["train", "test"]
Direction = Literal["forward", "reverse"]
Arm = Literal["", "defence first", "directives first", "no defence"]
QuestionType = Literal["standard", "manipulated", "part"]
AnswerType = Literal[
    "person", "thing", "organisation", "creature", "location", "numeral", "date", "event"
]


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``[start, end)`` of the context, and what they are.

    Of a question: ``answer``, the value asked for, or from which the answer is worked out;
    ``subject``, the mention the question starts from; ``fact``, a whole sentence that states the
    answer; ``bridge``, a whole sentence that must be read on the way to it; ``directive``, a whole
    sentence that the answer is to obey. Of a context: ``distractor``, prose that no question is
    about; ``defence`` and ``directive``, the parts of a system prompt."""

    kind: SpanKind
    start: int
    end: int

    def as_a(self, kind: SpanKind) -> "Span":
        """Returns the same characters in another part."""
        return Span(kind, self.start, self.end)

    def shift(self, by: int) -> "Span":
        return Span(self.kind, self.start + by, self.end + by)


@dataclass(frozen=True, slots=True)
class StatedValue:
    """A value that the context states about anything, and the characters ``[start, end)`` where it
    does."""

    text: str
    start: int
    end: int

    def shift(self, by: int) -> "StatedValue":
        return StatedValue(self.text, self.start + by, self.end + by)


@dataclass(frozen=True, slots=True)
class Question:
    """One question about a context."""

    id: str
    text: str
    golds: tuple[str, ...]
    answerable: bool
    direction: Direction
    answer_type: AnswerType
    hops: int  # facts that have to be read, 0 if the question cannot be answered
    # Empty if the question cannot be answered: nothing in the context carries the answer.
    spans: tuple[Span, ...]
    # Names on the way to the answer, in order: one less than the facts of a chain.
    bridges: tuple[str, ...] = ()
    # The answer stands in the context (standard), is worked out of what stands there (manipulated),
    # or is put together from several places (part).
    type: QuestionType = "standard"
    target: str | None = (
        None  # what a model is trained to write, where that is more than the first gold
    )
    directives: tuple[Directive, ...] = ()  # to be obeyed by the answer
    protected: str = ""  # the text that an attack is after
    # Right for something else that the context tells of, in other words than its own.
    others: tuple[str, ...] = ()
    # The beginning of the sentence that states the answer, such as "Ada Falbrook lives in": decoded
    # behind the question where a run asks for it, never compressed, and no part of the answer. It
    # does not end with a space.
    answer_prefix: str = ""
    every_gold: bool = (
        False  # an answer has to name all golds, in any order; else any one of them is right
    )

    @property
    def perfect_output(self) -> str:
        return self.golds[0] if self.target is None else self.target


@dataclass(frozen=True, slots=True)
class Example:
    """A context and its questions."""

    id: str
    task: str
    split: Split
    index: int
    context: str
    stated: tuple[StatedValue, ...]  # every place of every value
    questions: tuple[Question, ...]
    spans: tuple[Span, ...] = ()  # of the context as a whole
    arm: Arm = ""  # the way in which the draw is written, where there are several
    draw: str = ""  # the same for all arms

    @property
    def stated_values(self) -> tuple[str, ...]:
        """Lists each stated value once: a wrong answer among them is a confusion, not a
        fabrication."""
        return tuple(dict.fromkeys(value.text for value in self.stated))

    def joined_text(self, kind: SpanKind) -> str:
        """Joins the text of the context's spans of a kind; empty if it has none."""
        return " ".join(
            self.context[span.start : span.end] for span in self.spans if span.kind == kind
        )
