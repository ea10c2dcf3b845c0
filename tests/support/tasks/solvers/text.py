"""What every reader knows of a text: how names, values and sentences look, and how a template
reads."""

import re
from collections.abc import Iterator
from functools import cache

from datasets_gen.examples.wording import Phrasings

NAME = r"[A-Z][a-z]+ [A-Z][a-z]+"
VALUES = {
    "city": r"[A-Z][a-z]+",
    "organisation": NAME,
    "event": NAME,
    "person": NAME,
    "date": r"\d+ [A-Z][a-z]+ \d{4}",
    "number": r"\d+",
}


def value_of(kind: str) -> str:
    """The pattern of values of a kind."""
    return VALUES.get(kind, "[a-z]+")


def sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in re.findall(r"[^.]+\.", text)]


def names_someone(sentence: str) -> bool:
    return re.search(NAME, sentence) is not None


@cache
def compiled(template: str, slots: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    pattern = re.escape(template)
    for slot, words in slots:
        pattern = pattern.replace(rf"\{{{slot}\}}", f"(?P<{slot}>{words})")
    return re.compile(pattern)


def found(template: str, text: str, **slots: str) -> dict[str, str] | None:
    """What a text says in the slots of a template, each given with its pattern; None if it reads
    otherwise."""
    match = compiled(template, tuple(slots.items())).fullmatch(text)
    return None if match is None else match.groupdict()


def matches(phrasings: Phrasings, text: str, **slots: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The templates that a text reads as, and what it says in their slots."""
    for template in (*phrasings.common, *phrasings.held_out):
        words = found(template, text, **slots)
        if words is not None:
            yield template, words
