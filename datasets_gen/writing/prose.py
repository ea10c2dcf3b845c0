"""Prose that says nothing of anyone, and the contexts of any task set in it.

The sentences of a draft stay as they are and in their order, questions and answers too: only the
places move. Prose of its own comes between them, drawn from a generator of its own, so that of one
seed contexts of any length tell and ask the same."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise, permutations
from math import ceil
from typing import TypeVar

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Span, StatedValue
from datasets_gen.examples.lexicon import lexicon
from datasets_gen.examples.task import Draft, Length, Request, Task
from datasets_gen.examples.wording import tables

# ``{adjective}``, ``{place}`` and ``{other}``, another place, are words of the lexicon that no
# relation has as a value; no template holds a word that one has, nor a word that facts are stated
# with, such as "home" or "works".
TEMPLATES: tuple[str, ...] = tuple(tables()["prose"])
TOLERANCE = 0.02  # of the tokens asked for may be missing
SAMPLE = 256  # sentences from which the tokens of one are estimated
# Of correction; a long text takes two or three, a short one some swaps of single sentences.
ROUNDS = 200


@cache
def _pairs_of_places() -> tuple[tuple[str, str], ...]:
    return tuple(permutations(lexicon().place, 2))


def _words(sentence: str) -> int:
    return sentence.count(" ") + 1


def draw_sentences(rng: random.Random, count: int) -> list[str]:
    """Draws ``count`` sentences, each drawn for itself."""
    templates = rng.choices(TEMPLATES, k=count)
    adjectives = rng.choices(lexicon().adjective, k=count)
    places = rng.choices(_pairs_of_places(), k=count)
    return [
        template.format(adjective=adjective, place=place, other=other)
        for template, adjective, (place, other) in zip(templates, adjectives, places, strict=True)
    ]


def prose_of_words(rng: random.Random, words: int) -> list[str]:
    """Draws as many sentences as it takes to reach ``words`` words, and not one more."""
    sentences: list[str] = []
    while words > 0:
        # Even if all of them are the longest, no sentence but the last reaches the number.
        for sentence in draw_sentences(rng, words // max(map(_words, TEMPLATES)) + 1):
            sentences.append(sentence)
            words -= _words(sentence)
    return sentences


def prose_of_tokens(
    rng: random.Random, length: Length, write: Callable[[list[str]], str]
) -> list[str]:
    """Chooses sentences with which ``write(sentences)``, the whole text, has a length; raises
    :class:`DatasetError` where it has more without any.

    The whole is counted once for each correction; the first guess, from a sample of sentences, is a
    few per cent off, the second a few sentences."""
    tokens, count = length.tokens, length.count
    # What the text has without prose, and what a sentence adds on average, from a sample: by these
    # the first guess is made.
    without = count(write([]))
    rate = count(" ".join(draw_sentences(rng, SAMPLE))) / SAMPLE
    least = without + ceil(2 * rate)  # with less prose, not every number of tokens can be met
    if tokens < least:
        raise DatasetError(
            f"{tokens} tokens are too few for this context: its evidence and two sentences of "
            f"prose need {least}, those of others up to twice as many"
        )
    sentences = draw_sentences(rng, int((tokens - without) / rate))
    allowed = int(tokens * TOLERANCE)
    for _ in range(ROUNDS):
        missing = tokens - count(write(sentences))
        if 0 <= missing <= allowed:
            return sentences
        # Too long: off the end go as many as the average says, and one at least.
        if missing < 0:
            del sentences[-ceil(-missing / rate) :]
        # Too short by a sentence or more.
        elif missing >= rate or not sentences:
            sentences += draw_sentences(rng, max(1, int(missing / rate)))
        else:  # one sentence for a longer one; if none is drawn, the next round starts elsewhere
            old = count(sentences.pop(rng.randrange(len(sentences))))
            drawn = draw_sentences(rng, SAMPLE // 4)
            for sentence in drawn:
                if 0 <= missing + old - count(sentence) <= allowed:
                    sentences.append(sentence)
                    break
    raise DatasetError(
        f"no prose was found that fills {tokens} tokens of this tokenizer: ask for another number"
    )


def lay_out(
    pieces: Sequence[str],
    depths: Sequence[float],
    prose: Sequence[str],
    joint: str = " ",
    start: int = 0,
) -> tuple[str, list[int], tuple[Span, ...]]:
    """Sets pieces into prose; returns the text, where each piece begins, and the spans of the prose
    between them.

    ``depths``, ascending: the share of the prose that stands before each piece. No sentence is
    parted, and each gap is as likely as any other. ``start``: where the text itself begins."""
    # There is one gap more than there are sentences; depth 1 is behind the last of them.
    places = [min(int(depth * (len(prose) + 1)), len(prose)) for depth in depths]
    parts: list[str] = []
    starts: list[int] = []
    distractors: list[Span] = []
    for number, (first, last) in enumerate(pairwise([0, *places, len(prose)])):
        if first < last:
            parts.append(joint.join(prose[first:last]))
            distractors.append(Span("distractor", start, start + len(parts[-1])))
            start += len(parts[-1]) + len(joint)
        if number < len(pieces):
            starts.append(start)
            parts.append(pieces[number])
            start += len(parts[-1]) + len(joint)
    return joint.join(parts), starts, tuple(distractors)


_END_OF_SENTENCE = re.compile(r"(?<=[.!?]) (?=\S)")
# A sentence with such words is understood from the one right before it.
_GOES_ON = re.compile(r"^(Then|Soon|After that)\b|\b([Hh]e|[Ss]he|[Hh]is|[Hh]er|[Hh]im)\b")
Place = TypeVar("Place", Span, StatedValue)


def find_pieces(draft: Draft) -> list[tuple[int, int]]:
    """Finds the parts of a context between which prose may stand, as characters ``[start, end)``.

    Each is a sentence, with those behind it that are understood from it. No span is parted, and
    neither are the directives and the defence of a system prompt: these are one text."""
    text = draft.context
    prompt_end = 0
    whole: list[tuple[int, int]] = []
    for span in draft.spans:
        if span.kind != "distractor":
            whole.append((span.start, span.end))
        if span.kind in SYSTEM_PROMPT:
            prompt_end = max(prompt_end, span.end)
    for question in draft.questions:
        for span in question.spans:
            whole.append((span.start, span.end))
    # From the beginning of the text: nothing stands before a system prompt, or within it.
    whole.append((0, prompt_end))
    starts = [0]
    for match in _END_OF_SENTENCE.finditer(text):
        place = match.end()
        sentence = _END_OF_SENTENCE.split(text[place:], maxsplit=1)[0]
        parts_a_span = any(start < place < end for start, end in whole)
        if not _GOES_ON.search(sentence) and not parts_a_span:
            starts.append(place)
    # A space stands between two pieces.
    ends = [*(start - 1 for start in starts[1:]), len(text)]
    return list(zip(starts, ends, strict=True))


SYSTEM_PROMPT = ("defence", "directive")  # kinds of spans


def _make_in_prose(rng: random.Random, request: Request, task: Task, length: Length) -> Draft:
    """Puts prose between the pieces of a draft. What begins with a system prompt goes on beginning
    with it."""
    draft = task.make(rng, request)
    rng = random.Random(rng.getrandbits(64))
    pieces = find_pieces(draft)
    if length.depth is None:
        depths = length.depths(rng, len(pieces))
    else:
        depths = [length.depth] * len(pieces)
    if any(span.kind in SYSTEM_PROMPT for span in draft.spans):
        depths[0] = 0.0
    texts = [draft.context[start:end] for start, end in pieces]
    prose = prose_of_tokens(rng, length, lambda sentences: lay_out(texts, depths, sentences)[0])
    text, starts, distractors = lay_out(texts, depths, prose)

    def distance(span: Place) -> int:
        """Returns by how much the piece is moved that a span lies in."""
        for (start, end), new_start in zip(pieces, starts, strict=True):
            if start <= span.start and span.end <= end:
                return new_start - start
        raise AssertionError(f"{span} lies in no piece of {draft.context}")

    def shift(spans: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple(span.shift(distance(span)) for span in spans)

    kept = tuple(span for span in draft.spans if span.kind != "distractor")
    questions = tuple(
        replace(question, spans=shift(question.spans)) for question in draft.questions
    )
    return Draft(text, shift(draft.stated), questions, shift(kept) + distractors)


def in_prose(task: Task, length: Length) -> Task:
    """Returns the task with its contexts set in prose. A context that has more tokens without any
    prose raises :class:`DatasetError` when it is made."""
    return replace(
        task,
        description=f"{task.description}; {length.where} in prose about no one, {length.text}",
        make=partial(_make_in_prose, task=task, length=length),
        variant=length.variant_name(task),
    )
