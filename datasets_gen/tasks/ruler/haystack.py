"""Needles, the haystacks that they are hidden in, and how much of a haystack fills a context."""

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Span, StatedValue
from datasets_gen.writing.passage import write
from datasets_gen.writing.prose import TOLERANCE

# A line of noise is these sentences, one after the other, and the haystack that line again and again.
NOISE = ("The road is long.", "The lamp is lit.", "The river is near.", "On we go.", "Out and home again.")
FIRST_GUESS = 16  # units of a haystack
_END_OF_SENTENCE = re.compile(r"(?<=[.!?]) ")
_WORD = re.compile(r"\w[\w-]*")


@dataclass(frozen=True)
class Needle:
    """A sentence to be found; its template has the slots ``subject`` and others, which are answers."""

    template: str
    words: Mapping[str, str]  # by slot

    @property
    def text(self) -> str:
        return self.template.format(**self.words)

    def spans(self, start: int) -> tuple[Span, ...]:
        """Returns the spans of the sentence that starts there, and of its words."""
        text, places = write(self.template, self.words, start)
        words = (Span("subject" if slot == "subject" else "answer", *place) for slot, place in places.items())
        return (Span("fact", start, start + len(text)), *words)


Hay = Sequence[str | Needle]
Count = Callable[[str], int]
Write = Callable[[Hay], str]  # writes the whole context around a haystack
Fill = Callable[[random.Random, int, Count, Write], Hay]  # chooses what makes a context of so many tokens


@dataclass(frozen=True)
class Laid:
    """A context, with the places of what is in it."""

    text: str
    needles: tuple[tuple[Span, ...], ...]  # of each needle
    distractors: tuple[Span, ...]


def lay_out(lead: str, hay: Hay, needles: Sequence[Needle], depths: Sequence[float], joint: str) -> Laid:
    """Sets needles into a haystack behind a leading text, all joined by ``joint``.

    ``depths``, ascending: the share of the haystack that stands before each needle. Each gap is as likely as any other.
    """
    places = [min(int(depth * (len(hay) + 1)), len(hay)) for depth in depths]
    parts: list[str] = []
    spans: list[tuple[Span, ...]] = []
    distractors: list[Span] = []
    start = len(lead) + 1
    for number, (first, last) in enumerate(pairwise([0, *places, len(hay)])):
        if first < last:
            run = joint.join(one if isinstance(one, str) else one.text for one in hay[first:last])
            distractors.append(Span("distractor", start, start + len(run)))
            parts.append(run)
            start += len(run) + len(joint)
        if number < len(needles):
            spans.append(needles[number].spans(start))
            parts.append(needles[number].text)
            start += len(parts[-1]) + len(joint)
    return Laid(f"{lead}\n{joint.join(parts)}", tuple(spans), tuple(distractors))


def occurrences(text: str, values: Collection[str], start: int = 0) -> tuple[StatedValue, ...]:
    """Finds every place of every value, each a whole word that may have hyphens, from ``start`` on."""
    known = frozenset(values)
    return tuple(StatedValue(found[0], *found.span()) for found in _WORD.finditer(text, start) if found[0] in known)


def fit(tokens: int, count: Count, write_units: Callable[[int], str]) -> int:
    """Finds with how many units a text has ``tokens`` tokens, or up to 2 % less, or one unit less."""
    low, at_low = 0, count(write_units(0))
    if at_low > tokens:
        raise DatasetError(f"{tokens} tokens are too few for this context: without a haystack it has {at_low}")
    high = at_high = 0  # too many units, once there are any
    rate, guess = 0.0, FIRST_GUESS
    while not high or high - low > 1:
        found = count(write_units(guess))
        rate = (found - at_low) / (guess - low) or rate
        if found > tokens:
            high, at_high = guess, found
        else:
            low, at_low = guess, found
            if tokens - found <= int(tokens * TOLERANCE):
                break
        # Along the straight line through two readings: a text grows almost evenly, so a few readings do.
        step = int((tokens - at_low) / ((at_high - at_low) / (high - low) if high else rate))
        guess = low + max(1, step)
        if high:
            guess = min(guess, high - 1)
    return low


def noise(sentences: int) -> list[str]:
    """Returns lines of noise with so many sentences; the last line may be begun."""
    lines, rest = divmod(sentences, len(NOISE))
    return [" ".join(NOISE)] * lines + ([" ".join(NOISE[:rest])] if rest else [])


def noise_of_tokens(_: random.Random, tokens: int, count: Count, write_hay: Write) -> list[str]:
    return noise(fit(tokens, count, lambda sentences: write_hay(noise(sentences))))


def needles_of_tokens(draw: Callable[[random.Random], Needle]) -> Fill:
    """Makes a haystack of nothing but needles: as many as fit, or one less."""

    def fill(rng: random.Random, tokens: int, count: Count, write_hay: Write) -> list[Needle]:
        drawn: list[Needle] = []

        def first(number: int) -> list[Needle]:
            drawn.extend(draw(rng) for _ in range(number - len(drawn)))
            return drawn[:number]

        return first(fit(tokens, count, lambda number: write_hay(first(number))))

    return fill


def essays_of_tokens(sentences: Sequence[str]) -> Fill:
    """Makes a haystack of given sentences: from any of them on, in their order and from the beginning again where they
    end; the last one is cut at a word."""

    def fill(rng: random.Random, tokens: int, count: Count, write_hay: Write) -> list[str]:
        start = rng.randrange(len(sentences))

        def first(number: int) -> list[str]:
            return list(islice(cycle(sentences), start, start + number))

        whole = fit(tokens, count, lambda number: write_hay(first(number)))
        *hay, last = first(whole + 1)
        if count(write_hay(hay)) >= tokens - int(tokens * TOLERANCE):
            return hay
        words = last.split(" ")

        def with_words(number: int) -> list[str]:
            return [*hay, " ".join(words[:number])] if number else hay

        return with_words(fit(tokens, count, lambda number: write_hay(with_words(min(number, len(words))))))

    return fill


def sentences_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Cuts texts into sentences; white space becomes a space."""
    plain = (" ".join(text.split()) for text in texts)
    return tuple(sentence for text in plain for sentence in _END_OF_SENTENCE.split(text) if sentence)
