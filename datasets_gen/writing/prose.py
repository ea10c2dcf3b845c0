"""Prose that says nothing of anyone: distractor sentences without a name, a number or a value of the lexicon."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import ceil

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.lexicon import lexicon

# ``{adjective}``, ``{place}`` and ``{other}``, another place, are words of the lexicon that no relation has as a value;
# no template holds a word that one has, nor a word that facts are stated with, such as "home" or "works".
TEMPLATES = (
    "The {adjective} {place} near the {other} was calm in the morning.",
    "Nothing moved on the {adjective} {place} for an hour.",
    "Rain fell on the {place} and then on the {other}.",
    "The way from the {place} to the {other} was long and {adjective}.",
    "Behind the {adjective} {place} there was only grass.",
    "A little light came over the {place} before noon.",
    "The wind came from the {place} and went towards the {other}.",
    "Dry leaves lay on the {adjective} {place} all day.",
    "From the {place} the {other} looked small and {adjective}.",
    "The {place} had not changed for many years.",
    "In the evening the {adjective} {place} was the last to lose the light.",
    "Some said that the {place} was older than the {other}.",
    "Water stood on the {adjective} {place} after the rain.",
    "The {place} was closed, but the {other} was open.",
    "Beyond the {other} the {place} became {adjective}.",
    "There were white stones all along the {place}.",
    "Fog came down from the {place} and hid the {other}.",
    "The air at the {adjective} {place} smelled of smoke.",
    "Small clouds passed over the {place} and the {other}.",
    "The {adjective} {place} could be seen from far away.",
    "It was a long walk past the {place} to the {other}.",
    "Few came to the {adjective} {place} at night.",
    "At noon the shadow of the {other} reached the {place}.",
    "The {place} was {adjective}, and so was the {other}.",
    "Grass grew high around the {adjective} {place}.",
    "A thin line of trees stood between the {place} and the {other}.",
    "The ground at the {place} was soft and {adjective}.",
    "Everything was still at the {adjective} {place}.",
    "The sun went down behind the {other} and left the {place} in shadow.",
    "There was no sound from the {adjective} {place}.",
    "A low fence went around the {place}.",
    "The stones of the {adjective} {place} were slippery after the rain.",
    "Long ago the {other} had been larger than the {place}.",
    "The {place} was on the left and the {other} on the right.",
    "The {adjective} side of the {place} got no sun.",
    "Far below the {place} lay the {adjective} {other}.",
    "The day was slow at the {adjective} {place}.",
    "The colour of the {place} was like that of the {other}.",
    "Above the {adjective} {place} the sky was grey.",
    "There was not much to see between the {place} and the {other}.",
    "The {adjective} {place} was good for a rest.",
    "At night the {place} was only a shape against the sky.",
    "Dust lay on the {place} and on everything near it.",
    "The way to the {other} went past the {adjective} {place}.",
    "The rain stopped before it reached the {place}.",
    "Close to the {other} the {place} looked {adjective}.",
    "Each day at the {place} was like the day before.",
    "A cool wind came up from the {adjective} {place}.",
    "The {place} was {adjective}.",
    "Smoke hung over the {other} in the evening.",
)
TOLERANCE = 0.02  # of the tokens asked for may be missing
SAMPLE = 256  # sentences from which the tokens of one are estimated
ROUNDS = 200  # of correction; a long text takes two or three, a short one some swaps of single sentences


@cache
def _pairs_of_places() -> tuple[tuple[str, str], ...]:
    places = lexicon().place
    return tuple((one, other) for one in places for other in places if one != other)


@cache
def _longest() -> int:
    return max(map(_words, TEMPLATES))


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
        for sentence in draw_sentences(rng, words // _longest() + 1):
            sentences.append(sentence)
            words -= _words(sentence)
    return sentences


def prose_of_tokens(
    rng: random.Random, tokens: int, count: Callable[[str], int], write: Callable[[list[str]], str]
) -> list[str]:
    """Chooses sentences with which ``write(sentences)``, the whole text, has ``tokens`` tokens, or up to 2 % less.

    ``count`` gives the tokens of a text. It reads the whole once for each correction; the first guess, from a sample
    of sentences, is a few per cent off, the second a few sentences.
    """
    without = count(write([]))
    rate = count(" ".join(draw_sentences(rng, SAMPLE))) / SAMPLE
    least = without + ceil(2 * rate)  # with less prose, not every number of tokens can be met
    if tokens < least:
        raise DatasetError(
            f"{tokens} tokens are too few for this context: its evidence and two sentences of prose need {least}, "
            "those of others up to twice as many"
        )
    sentences = draw_sentences(rng, int((tokens - without) / rate))
    allowed = int(tokens * TOLERANCE)
    for _ in range(ROUNDS):
        missing = tokens - count(write(sentences))
        if 0 <= missing <= allowed:
            return sentences
        if missing < 0:
            del sentences[-ceil(-missing / rate) :]
        elif missing >= rate or not sentences:
            sentences += draw_sentences(rng, max(1, int(missing / rate)))
        else:
            _lengthen(rng, sentences, missing, allowed, count)
    raise DatasetError(f"no prose was found that fills {tokens} tokens of this tokenizer: ask for another number")


def _lengthen(
    rng: random.Random, sentences: list[str], missing: int, allowed: int, count: Callable[[str], int]
) -> None:
    """Changes one sentence for one that is longer by what is missing, less than a sentence; if none is drawn, drops
    it, so that the next round starts elsewhere."""
    old = sentences.pop(rng.randrange(len(sentences)))
    for sentence in draw_sentences(rng, SAMPLE // 4):
        if 0 <= missing - (count(sentence) - count(old)) <= allowed:
            sentences.append(sentence)
            return


Fill = Callable[[random.Random, Callable[[list[str]], str]], list[str]]  # prose for the text that the function writes
MOST_TOKENS = 131_072


@dataclass(frozen=True)
class Length:
    """Holds what fills a context with prose, and how long that makes it, in words."""

    fill: Fill
    text: str


def length_in_words(words: tuple[int, int]) -> Length:
    """Asks for (fewest, most) words of prose."""
    if not 0 <= words[0] <= words[1]:
        raise DatasetError(f"the words of prose go from 0 or more up to no fewer, not from {words[0]} to {words[1]}")
    return Length(partial(fill_words, words=words), f"{words[0]} to {words[1]} words of prose")


def length_in_tokens(tokens: int, count: Callable[[str], int], counted_by: str = "") -> Length:
    """Asks for ``tokens`` tokens, or up to 2 % less; ``count`` gives the tokens of a text, as a tokenizer of that name
    counts them."""
    if not 1 <= tokens <= MOST_TOKENS:
        raise DatasetError(f"a context has 1 or more tokens and {MOST_TOKENS} at most, not {tokens}")
    by = f" of {counted_by}" if counted_by else ""
    return Length(partial(_fill_tokens, tokens=tokens, count=count), f"{tokens} tokens{by}")


def fill_words(rng: random.Random, _: Callable[[list[str]], str], words: tuple[int, int]) -> list[str]:
    return prose_of_words(rng, rng.randint(*words))


def _fill_tokens(
    rng: random.Random, write: Callable[[list[str]], str], tokens: int, count: Callable[[str], int]
) -> list[str]:
    return prose_of_tokens(rng, tokens, count, write)


def place_in_prose(depth: float | None) -> str:
    """Says where in the prose the evidence stands: scattered, or together at a relative depth."""
    if depth is not None and not 0 <= depth <= 1:
        raise DatasetError(f"the depth of the evidence goes from 0, the beginning, to 1, the end, not {depth}")
    return "scattered" if depth is None else f"together at depth {depth}"
