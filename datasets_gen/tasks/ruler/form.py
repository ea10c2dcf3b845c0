"""Makes the tasks of RULER, which have in common a context of a number of tokens, one question, and
RULER's metric.

Forms, counts, haystacks and numbers of new tokens are those of RULER (arXiv 2404.06654); texts and
words are our own."""

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle, islice
from typing import Literal

from pydantic import BaseModel

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Span, StatedValue
from datasets_gen.examples.lexicon import read_released
from datasets_gen.examples.task import Draft, Length, Task
from datasets_gen.writing import prose
from datasets_gen.writing.passage import write

FAMILY = "ruler"
USUAL = 4096
CHARACTERS_OF_A_TOKEN = 4  # about, in English
# A line of noise is these sentences, one after the other, and the haystack that line again and
# again.
NOISE = (
    "The road is long.",
    "The lamp is lit.",
    "The river is near.",
    "On we go.",
    "Out and home again.",
)
FIRST_GUESS = 16  # units of a haystack
_WORD = re.compile(r"\w[\w-]*")
Make = Callable[..., Draft]  # of a generator, a request and a length


def _count_roughly(text: str) -> int:
    return len(text) // CHARACTERS_OF_A_TOKEN


USUAL_LENGTH = Length(USUAL, _count_roughly)


def ruler_task(
    name: str,
    description: str,
    make: Make,
    max_new_tokens: int,
    answer_end: Literal["sentence", "tokens"] = "tokens",
    chance: float = 0.0,
    variant: str = "",
    version: str = "1.0.0",
    questions: int = 1,
) -> Task:
    """Returns a task of RULER; without a length its contexts have about 4,096 tokens of four
    characters."""
    task = Task(
        name=name,
        version=version,
        description=description,
        make=partial(make, length=USUAL_LENGTH),
        chances=(chance,),
        contexts={"quick": 12, "paper": 500},
        questions_per_context=questions,
        instruction="",  # the context itself begins with what is to be done
        max_new_tokens=max_new_tokens,
        variant=variant,
        paper="arXiv 2404.06654",
        family=FAMILY,
        answer_end=answer_end,
        usual_tokens=USUAL,
    )
    return replace(task, with_length=partial(_with_length, task, make))


def _with_length(task: Task, make: Make, length: Length) -> Task:
    where = f", {length.where}" if length.depth is not None else ""
    return replace(
        task,
        description=f"{task.description}; {length.text}{where}",
        make=partial(make, length=length),
        variant=length.variant_name(task),
    )


WORDS_SHA256 = "f3a6fc2b3a145b6250343cf684d61a707f0d73c106bbfc48c2d28f202baf5721"
MOST_LETTERS = 5  # of a short word


class Vocabulary(BaseModel):
    """Words by kind, in lower case; none is listed twice."""

    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.adjectives, *self.nouns, *self.verbs)


@cache
def vocabulary() -> Vocabulary:
    """Returns the words of the RULER tasks; raises :class:`DatasetError` if their file was
    changed."""
    return Vocabulary.model_validate(
        read_released("datasets_gen.tasks.ruler", "words.json", WORDS_SHA256)
    )


@cache
def short_words() -> tuple[str, ...]:
    """Lists the short words that are part of no other word: an output that holds one of them as a
    substring names it.

    Hundreds of them stand in a list, and few tokens of a small vocabulary have to hold it.
    """
    words = vocabulary().words
    text = " ".join(words)
    return tuple(word for word in words if len(word) <= MOST_LETTERS and text.count(word) == 1)


@dataclass(frozen=True)
class Needle:
    """A sentence to be found; its template has the slots ``subject`` and others, which are
    answers."""

    template: str
    words: Mapping[str, str]  # by slot

    @property
    def text(self) -> str:
        return self.template.format(**self.words)

    def spans(self, start: int) -> tuple[Span, ...]:
        text, places = write(self.template, self.words, start)
        words = (
            Span("subject" if slot == "subject" else "answer", *place)
            for slot, place in places.items()
        )
        return (Span("fact", start, start + len(text)), *words)


Hay = Sequence[str | Needle]
Write = Callable[[Hay], str]  # writes the whole context around a haystack


@dataclass(frozen=True)
class Laid:
    """A context, with the places of what is in it."""

    text: str
    needles: tuple[tuple[Span, ...], ...]  # of each needle
    distractors: tuple[Span, ...]


def lay_out(
    lead: str, hay: Hay, needles: Sequence[Needle], depths: Sequence[float], joint: str
) -> Laid:
    """Sets needles into a haystack behind a leading text, all joined by ``joint``, at ascending
    depths."""
    lines = []
    for unit in hay:
        lines.append(unit.text if isinstance(unit, Needle) else unit)
    texts = [needle.text for needle in needles]
    text, starts, distractors = prose.lay_out(texts, depths, lines, joint, len(lead) + 1)
    spans = tuple(map(Needle.spans, needles, starts))
    return Laid(f"{lead}\n{text}", spans, distractors)


def occurrences(text: str, values: Collection[str], start: int = 0) -> tuple[StatedValue, ...]:
    """Finds every place of every value, each a whole word that may have hyphens, from ``start``
    on."""
    searched = frozenset(values)
    places = []
    for match in _WORD.finditer(text, start):
        if match[0] in searched:
            places.append(StatedValue(match[0], *match.span()))
    return tuple(places)


def fit(length: Length, write_units: Callable[[int], str]) -> int:
    """Finds with how many units a text has a length, or one unit less.

    Raises :class:`DatasetError` where the text has more tokens without any unit.
    """
    # A gap to RULER, which counts the question and the tokens of an answer too: a length here is
    # that of the context, as that is what is compressed.
    tokens, count = length.tokens, length.count
    low, at_low = 0, count(write_units(0))
    if at_low > tokens:
        raise DatasetError(
            f"{tokens} tokens are too few for this context: without a haystack it has {at_low}"
        )
    high = at_high = 0  # too many units, once there are any
    rate, guess = 0.0, FIRST_GUESS
    while not high or high - low > 1:
        at_guess = count(write_units(guess))
        # A guess that adds no tokens leaves the rate of before: it is divided by.
        rate = (at_guess - at_low) / (guess - low) or rate
        if at_guess > tokens:
            high, at_high = guess, at_guess
        else:
            low, at_low = guess, at_guess
            if tokens - at_guess <= int(tokens * prose.TOLERANCE):
                break
        # Along the straight line through two readings: a text grows almost evenly, so a few
        # readings do.
        slope = (at_high - at_low) / (high - low) if high else rate
        step = int((tokens - at_low) / slope)
        guess = low + max(1, step)
        if high:
            guess = min(guess, high - 1)
    return low


def noise(sentences: int) -> list[str]:
    """Returns lines of noise with so many sentences; the last line may be begun."""
    whole_lines, rest = divmod(sentences, len(NOISE))
    lines = [" ".join(NOISE)] * whole_lines
    if rest:
        lines.append(" ".join(NOISE[:rest]))
    return lines


def essays_of_tokens(
    sentences: Sequence[str], rng: random.Random, length: Length, write_hay: Write
) -> list[str]:
    """Fills a length with given sentences, from any of them on, and from the beginning again where
    they end. Raises as :func:`fit` does."""
    # RULER's essays begin with the first one in every context.
    start = rng.randrange(len(sentences))

    def first(number: int) -> list[str]:
        return list(islice(cycle(sentences), start, start + number))

    return first(fit(length, lambda number: write_hay(first(number))))


def noise_of_tokens(_: random.Random, length: Length, write_hay: Write) -> list[str]:
    """Fills a length with noise; raises as :func:`fit` does."""
    return noise(fit(length, lambda sentences: write_hay(noise(sentences))))
