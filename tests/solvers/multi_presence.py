"""A reader of task ``multi_presence``: it knows the phrasings and nothing of how an example was made."""

import re
from collections.abc import Callable, Iterator
from functools import cache

from datasets_gen.multi_presence import PERIODS, Period
from datasets_gen.wording import Phrasings

NAME = r"[A-Z][a-z]+ [A-Z][a-z]+"
VALUES = {"city": r"[A-Z][a-z]+", "organisation": NAME, "event": NAME, "number": r"\d{2,3}"}

Words = dict[str, str]  # subject, value and year


@cache
def pattern(template: str, kind: str) -> re.Pattern[str]:
    """The template with a pattern for each of its slots; ``kind`` is that of the value."""
    slots = {"subject": NAME, "value": VALUES.get(kind, "[a-z]+"), "year": r"\d{4}"}
    return re.compile(re.sub(r"\\\{(\w+)\\\}", lambda found: f"(?P<{found[1]}>{slots[found[1]]})", re.escape(template)))


def matches(period: Period, phrasings: Phrasings, text: str) -> Iterator[Words]:
    for template in (*phrasings.common, *phrasings.held_out):
        if found := pattern(template, period.value_kind).fullmatch(text):
            yield found.groupdict()


def sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in re.findall(r"[^.]+\.", text)]


@cache
def read(context: str) -> tuple[tuple[Period, Words], ...]:
    """What the sentences state; each must be readable in one way only."""
    known = []
    for sentence in sentences(context):
        readings = [(period, words) for period in PERIODS for words in matches(period, period.statements, sentence)]
        assert len(readings) == 1, f"{sentence!r} reads as {readings}"
        known += readings
    return tuple(known)


def told(period: Period, given: Words, context: str) -> list[Words]:
    """The statements about a relation that say these words."""
    return [words for other, words in read(context) if other is period and given.items() <= words.items()]


def readings(question: str, context: str) -> Iterator[set[str]]:
    """The answers to each way in which the question can be read."""
    for period in PERIODS:
        for asked, phrasings in period.look_up.items():
            for given in matches(period, phrasings, question):
                yield {words[asked] for words in told(period, given, context)}
        places: tuple[tuple[Phrasings, Callable[..., str]], ...] = ((period.first, min), (period.last, max))
        for phrasings, pick in places:
            for given in matches(period, phrasings, question):
                by_year = {words["year"]: words["value"] for words in told(period, given, context)}
                yield {by_year[pick(by_year)]} if by_year else set()


def solve(question: str, context: str) -> set[str]:
    """Every answer that the context gives; the question must be readable in one way only."""
    answers = list(readings(question, context))
    assert len(answers) == 1, f"{question!r} reads in {len(answers)} ways"
    return answers[0]
