"""Tasks ``cwe`` and ``fwe``: which words are the most frequent, in a list and in a coded text
(arXiv 2404.06654)."""

import math
import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Question, Span
from datasets_gen.examples.task import Draft, Length, Request
from datasets_gen.examples.wording import QuestionText
from datasets_gen.tasks.ruler.form import fit, occurrences, ruler_task, short_words, vocabulary
from datasets_gen.writing.questions import answerable

COMMON = 10  # words that a list has more often than others
CWE_LEAD = "Some words of the list below come up more often than the others. Remember which ones."
CWE_QUESTION = f"What are the {COMMON} most common words in the list above?"
CWE_PREFIX = f"The {COMMON} words that come up most often in the list above are:"

FREQUENT = 3
DOTS = "..."  # the most frequent of all, which is noise
CODE_LETTERS = 6
TOKENS_OF_A_CODED_WORD = 50  # a context of so many tokens has one more coded word to choose from
ALPHA = 2.0
ZETA_OF_ALPHA = math.pi**2 / 6
FWE_LEAD = "Count how often each coded word comes up in the text below. "
FWE_LEAD += f"You will be asked for the {FREQUENT} most frequent."
FWE_QUESTION = (
    f"Which are the {FREQUENT} most frequent coded words of the text above? Ignore the dots "
    f"'{DOTS}', and do not explain the answer."
)
FWE_PREFIX = f"The {FREQUENT} most frequent coded words of the text above are:"


@dataclass(frozen=True)
class Repeats:
    """How often a list has each of its common words and each of its others."""

    common: int
    other: int

    def write(self, order: random.Random, common: Sequence[str], others: Sequence[str]) -> str:
        words = [*self.common * list(common), *self.other * list(others)]
        order.shuffle(words)
        return numbered(words)


LONG = 4096  # tokens from which a list has more repeats
# Of the worked example, with its number of other words; and of the list.
SHORT_FORM = (Repeats(3, 1), 10, Repeats(6, 1))
LONG_FORM = (Repeats(10, 3), 30, Repeats(30, 3))


def numbered(words: Sequence[str]) -> str:
    """Writes words as a list.

    >>> numbered(["oak", "lamp"])
    '1. oak 2. lamp'
    """
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, 1))


def other_words(rng: random.Random, common: Sequence[str]) -> Iterator[str]:
    """Draws words that differ: single ones first, pairs when they end. None has a common word in
    it."""
    single = [word for word in vocabulary().words if word not in common]
    yield from rng.sample(single, len(single))
    firsts = [word for word in vocabulary().adjectives if word not in common]
    seconds = [word for word in vocabulary().nouns if word not in common]
    pairs = len(firsts) * len(seconds)
    for pair in rng.sample(range(pairs), pairs):
        yield f"{firsts[pair // len(seconds)]}-{seconds[pair % len(seconds)]}"


def _cwe(rng: random.Random, _: Request, length: Length) -> Draft:
    _refuse_depth("cwe", length)
    of_example, number_of_others, of_list = LONG_FORM if length.tokens >= LONG else SHORT_FORM
    drawn = rng.sample(short_words(), 2 * COMMON)
    shown, common = drawn[:COMMON], drawn[COMMON:]
    # Apart from what else is drawn: how many of them a length takes changes nothing that follows.
    source = other_words(random.Random(rng.getrandbits(64)), drawn)
    others_of_example = list(islice(source, number_of_others))
    example = of_example.write(rng, shown, others_of_example)
    head = f"{CWE_LEAD}\n{example}\n{CWE_QUESTION}\n{CWE_PREFIX} {numbered(shown)}\n{CWE_LEAD}\n"
    # A seed and no generator: each try of a length shuffles from the same state.
    order, others = rng.getrandbits(64), list[str]()

    def write(number: int) -> str:
        # Drawn once and kept: the next try may be a shorter one.
        others.extend(islice(source, max(0, number - len(others))))
        return head + of_list.write(random.Random(order), common, others[:number])

    text = write(fit(length, write))
    known = {*drawn, *others_of_example, *others}
    question = _question(CWE_QUESTION, CWE_PREFIX, text, len(head), common, numbered(common))
    return Draft(
        text, occurrences(text, known), (question,), (Span("distractor", 0, len(head) - 1),)
    )


def counts_of_ranks(words: int, ranks: int) -> list[int]:
    """Returns how often the word of each rank stands in a text of about so many words: by Zipf's
    law, cut off."""
    return [int(words * rank**-ALPHA / ZETA_OF_ALPHA) for rank in range(1, ranks + 1)]


def _fwe(rng: random.Random, _: Request, length: Length) -> Draft:
    _refuse_depth("fwe", length)
    ranks = max(FREQUENT + 2, length.tokens // TOKENS_OF_A_CODED_WORD)
    coded: dict[str, None] = {}
    # A dict tells repeats, and keeps the order of drawing: the first words are the most frequent.
    while len(coded) < ranks - 1:
        coded["".join(rng.choices(string.ascii_lowercase, k=CODE_LETTERS))] = None
    order = rng.getrandbits(64)

    def write(number: int) -> str:
        counts = counts_of_ranks(number, ranks)
        words: list[str] = []
        for word, times in zip((DOTS, *coded), counts, strict=True):
            words += [word] * times
        random.Random(order).shuffle(words)
        return f"{FWE_LEAD}\n{' '.join(words)}"

    number = fit(length, write)
    counts = counts_of_ranks(number, ranks)
    # The dots have the first rank, so that this is the last word asked for.
    if counts[FREQUENT] == counts[FREQUENT + 1]:
        raise DatasetError(
            f"{length.tokens} tokens are too few for fwe: its {FREQUENT} most frequent words would "
            f"not stand out"
        )
    text, golds = write(number), list(coded)[:FREQUENT]
    question = _question(FWE_QUESTION, FWE_PREFIX, text, len(FWE_LEAD), golds, ", ".join(golds))
    return Draft(text, occurrences(text, coded, len(FWE_LEAD)), (question,))


def _question(
    text: str, prefix: str, context: str, start: int, golds: Sequence[str], target: str
) -> Question:
    """Asks for the most frequent words, of which every place from ``start`` on is an answer."""
    spans = tuple(
        Span("answer", place.start, place.end) for place in occurrences(context, golds, start)
    )
    question = answerable(QuestionText(text, prefix), golds[0], "thing", "forward", spans)
    return replace(question, golds=tuple(golds), type="manipulated", target=target, every_gold=True)


def _refuse_depth(name: str, length: Length) -> None:
    if length.depth is not None:
        raise DatasetError(
            f"depth is for needles, and {name} has none: its words stand all over the context"
        )


CWE = ruler_task(
    "cwe",
    f"RULER's common words: the {COMMON} that a numbered list has most often, behind a worked "
    f"example",
    _cwe,
    120,
    # Of a guesser who names every word that may be common: each is as often as any other.
    chance=2.7,
)
FWE = ruler_task(
    "fwe", f"RULER's frequent words: the {FREQUENT} most frequent of a coded text", _fwe, 50
)
