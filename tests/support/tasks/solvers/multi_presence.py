"""A reader of task ``multi_presence``: it knows the phrasings and nothing of how an example was
made."""

from collections.abc import Callable, Iterator
from functools import cache

from datasets_gen.examples.wording import Phrasings
from datasets_gen.tasks.multi_presence import PERIODS, Period
from tests.support.tasks.solvers.text import NAME, matches, sentences, value_of

Words = dict[str, str]  # subject, value and year


def words_of(period: Period, phrasings: Phrasings, text: str) -> Iterator[Words]:
    for _, words in matches(
        phrasings, text, subject=NAME, value=value_of(period.value_kind), year=r"\d{4}"
    ):
        yield words


@cache
def read(context: str) -> tuple[tuple[Period, Words], ...]:
    """What the sentences state; each must be readable in one way only."""
    known = []
    for sentence in sentences(context):
        readings = [
            (period, words)
            for period in PERIODS
            for words in words_of(period, period.statements, sentence)
        ]
        assert len(readings) == 1, f"{sentence!r} reads as {readings}"
        known += readings
    return tuple(known)


def told(period: Period, given: Words, context: str) -> list[Words]:
    """The statements about a relation that say these words."""
    return [
        words
        for other, words in read(context)
        if other is period and given.items() <= words.items()
    ]


def readings(question: str, context: str) -> Iterator[set[str]]:
    """The answers to each way in which the question can be read."""
    for period in PERIODS:
        for asked, phrasings in period.look_up.items():
            for given in words_of(period, phrasings, question):
                yield {words[asked] for words in told(period, given, context)}
        places: tuple[tuple[Phrasings, Callable[..., str]], ...] = (
            (period.first, min),
            (period.last, max),
        )
        for phrasings, pick in places:
            for given in words_of(period, phrasings, question):
                by_year = {words["year"]: words["value"] for words in told(period, given, context)}
                yield {by_year[pick(by_year)]} if by_year else set()


def solve(question: str, context: str) -> set[str]:
    """Every answer that the context gives; the question must be readable in one way only."""
    answers = list(readings(question, context))
    assert len(answers) == 1, f"{question!r} reads in {len(answers)} ways"
    return answers[0]
