"""Sets the contexts of any task in prose that is about no one, to any length.

The sentences of a draft stay as they are and in their order, questions and answers too: only the places move. Prose of
its own comes between them, drawn from a generator of its own, so that of one seed contexts of any length tell and ask
the same.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Question, Span, StatedValue
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.writing.prose import Fill, Length, length_in_tokens, length_in_words, place_in_prose

_END_OF_SENTENCE = re.compile(r"(?<=[.!?]) (?=\S)")
# A sentence with such words is understood from the one right before it.
_GOES_ON = re.compile(r"^(Then|Soon|After that)\b|\b([Hh]e|[Ss]he|[Hh]is|[Hh]er|[Hh]im)\b")


Place = TypeVar("Place", Span, StatedValue)


@dataclass(frozen=True)
class Piece:
    """Characters ``[start, end)`` of a draft's context that stay together."""

    start: int
    end: int


def pieces_of(draft: Draft) -> list[Piece]:
    """Finds the parts of a context between which prose may stand.

    Each is a sentence, with those behind it that are understood from it. No span is parted, and neither are the
    directives and the defence of a system prompt: these are one text.
    """
    text = draft.context
    whole = [(span.start, span.end) for question in draft.questions for span in question.spans]
    whole += [(span.start, span.end) for span in draft.spans if span.kind != "distractor"]
    prompt = [span for span in draft.spans if span.kind in ("defence", "directive")]
    if prompt:
        whole.append((0, max(span.end for span in prompt)))
    starts = [0]
    for match in _END_OF_SENTENCE.finditer(text):
        sentence = _END_OF_SENTENCE.split(text[match.end() :], maxsplit=1)[0]
        if not _GOES_ON.search(sentence) and not any(start < match.end() < end for start, end in whole):
            starts.append(match.end())
    ends = [start - 1 for start in starts[1:]] + [len(text)]
    return [Piece(start, end) for start, end in zip(starts, ends, strict=True)]


def lay_out(
    text: str, pieces: Sequence[Piece], depths: Sequence[float], prose: Sequence[str]
) -> tuple[str, list[int], tuple[Span, ...]]:
    """Sets the pieces into the prose: returns the text, by how much each piece moved, and the spans of the prose.

    ``depths``, ascending: the share of the prose that stands before each piece; one sentence is never parted.
    """
    parts: list[str] = []
    moves: list[int] = []
    distractors: list[Span] = []
    start = position = 0

    def add(part: str) -> None:
        nonlocal start
        parts.append(part)
        start += len(part) + 1

    def add_prose(upto: int) -> None:
        nonlocal position
        if upto > position:
            sentences = " ".join(prose[position:upto])
            distractors.append(Span("distractor", start, start + len(sentences)))
            add(sentences)
            position = upto

    for piece, depth in zip(pieces, depths, strict=True):
        add_prose(min(int(depth * (len(prose) + 1)), len(prose)))  # each gap is as likely as any other
        moves.append(start - piece.start)
        add(text[piece.start : piece.end])
    add_prose(len(prose))
    return " ".join(parts), moves, tuple(distractors)


def set_in_prose(rng: random.Random, draft: Draft, fill: Fill, depth: float | None = None) -> Draft:
    """Puts prose between the pieces of a draft: they are scattered over it, or stand together at a relative depth.

    What begins with a system prompt goes on beginning with it.
    """
    pieces = pieces_of(draft)
    depths = sorted(rng.random() for _ in pieces) if depth is None else [depth] * len(pieces)
    if any(span.kind in ("defence", "directive") for span in draft.spans):
        depths[0] = 0.0
    prose = fill(rng, lambda sentences: lay_out(draft.context, pieces, depths, sentences)[0])
    text, moves, distractors = lay_out(draft.context, pieces, depths, prose)

    def shift_spans(spans: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple(_shift_span(span, pieces, moves) for span in spans)

    def with_moved_spans() -> Iterator[Question]:
        for question in draft.questions:
            yield replace(question, spans=shift_spans(question.spans))

    kept = tuple(span for span in draft.spans if span.kind != "distractor")
    questions, stated = tuple(with_moved_spans()), shift_spans(draft.stated)
    return Draft(text, stated, questions, shift_spans(kept) + distractors)


def _shift_span(span: Place, pieces: Sequence[Piece], moves: Sequence[int]) -> Place:
    for piece, by in zip(pieces, moves, strict=True):
        if piece.start <= span.start and span.end <= piece.end:
            return span.shift(by)
    raise DatasetError(f"the characters {span.start} to {span.end} belong to no piece: a span was parted")


def _make(rng: random.Random, request: Request, task: Task, fill: Fill, depth: float | None) -> Draft:
    draft = task.make(rng, request)
    return set_in_prose(random.Random(rng.getrandbits(64)), draft, fill, depth)


def in_words_of_prose(task: Task, words: tuple[int, int], depth: float | None = None) -> Task:
    """Returns the task with (fewest, most) words of prose in every context."""
    return _variant(task, length_in_words(words), depth)


def in_tokens(
    task: Task, tokens: int, count: Callable[[str], int], depth: float | None = None, counted_by: str = ""
) -> Task:
    """Returns the task with contexts of ``tokens`` tokens, or up to 2 % less; ``count`` gives the tokens of a text, as
    a tokenizer of that name counts them.

    A context that has more than that without any prose raises :class:`DatasetError` when it is made.
    """
    return _variant(task, length_in_tokens(tokens, count, counted_by), depth)


def _variant(task: Task, length: Length, depth: float | None) -> Task:
    where = place_in_prose(depth)
    name = f"{length.text} {where}".replace(" ", "-")
    return replace(
        task,
        description=f"{task.description}; {where} in prose about no one, {length.text}",
        make=partial(_make, task=task, fill=length.fill, depth=depth),
        variant=f"{task.variant}+{name}" if task.variant else name,
    )
