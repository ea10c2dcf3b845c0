"""The frozen word lists, and how subjects and values are drawn from them.

The lists live in ``lexicon.json`` beside this file. They are our own, carry a version, and their
hash is checked: a benchmark whose words changed silently would compare numbers that are not
comparable."""

import hashlib
import json
import random
import re
import zlib
from collections.abc import Container
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Split

LEXICON_SHA256 = "a545b71cb04ec35e915552006c61b90417cd8ec1a9502cf4dbccafc963dae743"
TEST_SHARE = 5  # one full name in five belongs to the test split


class Lexicon(BaseModel):
    """Word lists by kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    given: tuple[str, ...]
    family: tuple[str, ...]
    city: tuple[str, ...]
    job: tuple[str, ...]
    organisation_first: tuple[str, ...]
    organisation_second: tuple[str, ...]
    creature: tuple[str, ...]
    thing: tuple[str, ...]
    event_first: tuple[str, ...]
    event_second: tuple[str, ...]
    month: tuple[str, ...]
    day: tuple[int, int]  # an inclusive range, as the next two
    year: tuple[int, int]  # whoever was born in the last is old enough for a job
    number: tuple[int, int]
    feminine: tuple[str, ...]  # given names of women; the others are of men
    instrument: tuple[str, ...]  # things that are played
    place: tuple[str, ...]  # no value of any relation, as the next three
    adjective: tuple[str, ...]
    keyword: tuple[str, ...]
    item: tuple[str, ...]  # in the plural


def read_released(package: str, name: str, digest: str) -> Any:
    """Reads a file of words; raises :class:`DatasetError` if it is not the released one, byte for
    byte."""
    content = files(package).joinpath(name).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise DatasetError(
            f"{name} of {package} was changed: restore it, or release a new version of the words "
            f"together with its hash"
        )
    return json.loads(content)


@cache
def lexicon() -> Lexicon:
    """Returns the words of all tasks; raises :class:`DatasetError` if their file was changed."""
    return Lexicon.model_validate(read_released(__package__, "lexicon.json", LEXICON_SHA256))


def name_split(full_name: str) -> Split:
    """Tells the split that a full name belongs to, for ever.

    Subjects of the two splits are disjoint, so no (subject, value) pair can be seen in training and
    asked in a test. ``crc32`` and not ``hash``: the latter changes with PYTHONHASHSEED."""
    if zlib.crc32(full_name.encode()) % TEST_SHARE == 0:
        return "test"
    return "train"


@cache
def full_names(split: Split) -> tuple[tuple[str, str], ...]:
    """Lists all (given, family) pairs of a split, in lexicon order."""
    words = lexicon()
    names = []
    for first in words.given:
        for family in words.family:
            if name_split(f"{first} {family}") == split:
                names.append((first, family))
    return tuple(names)


def draw_people(rng: random.Random, split: Split, count: int) -> list[str]:
    """Draws ``count`` full names of the split that share neither a given nor a family name."""
    names = full_names(split)
    people: list[str] = []
    used: set[str] = set()
    while len(people) < count:
        given, family = names[rng.randrange(len(names))]
        # Two people with one name in common would be half right for one another by F1.
        if given not in used and family not in used:
            used |= {given, family}
            people.append(f"{given} {family}")
    return people


def draw_value(rng: random.Random, kind: str) -> str:
    """Draws one value of a kind: ``city job organisation creature thing event date number``. Raises
    :class:`DatasetError` for another kind."""
    words = lexicon()
    match kind:
        case "city" | "job" | "creature" | "thing":
            return str(rng.choice(getattr(words, kind)))
        case "organisation" | "event":
            return " ".join(
                rng.choice(getattr(words, f"{kind}_{part}")) for part in ("first", "second")
            )
        case "date":
            # Any day goes with any month, as days end at the 28th. They are drawn in the order in
            # which they are written: another order makes other contexts of the same seed.
            return f"{rng.randint(*words.day)} {rng.choice(words.month)} {rng.randint(*words.year)}"
        case "number":
            return str(rng.randint(*words.number))
    raise DatasetError(f"the lexicon has no values of kind '{kind}'")


def draw_values(rng: random.Random, kind: str, count: int) -> list[str]:
    """Draws ``count`` values of a kind; no two share a word, or a confused answer would be half
    right by F1.

    One may begin as another does ("69", "694"): outputs are compared word by word, never by what
    they contain. Raises :class:`DatasetError` for a kind that the lexicon has not."""
    values: list[str] = []
    used: set[str] = set()
    while len(values) < count:
        value = draw_value(rng, kind)
        if used.isdisjoint(value.split()):
            used |= set(value.split())
            values.append(value)
    return values


def draw_unmentioned(rng: random.Random, kind: str, mentioned: Container[str]) -> str:
    """Draws a value of a kind that is not mentioned; raises :class:`DatasetError` for a kind that
    the lexicon has not."""
    while True:
        value = draw_value(rng, kind)
        if value not in mentioned:
            return value


@cache
def _kinds() -> dict[str, frozenset[str]]:
    """Returns the kinds of values of each word that is one by itself."""
    words = lexicon()
    kinds: dict[str, frozenset[str]] = {}
    for kind in ("city", "job", "creature", "thing", "instrument"):
        for word in getattr(words, kind):
            kinds[word] = kinds.get(word, frozenset()) | {kind}
    return kinds


@cache
def value_kinds(value: str) -> frozenset[str]:
    """Returns the kinds that a value of the lexicon, or a list of such values, is of; none of any
    other text.

    >>> sorted(value_kinds("Ada Falbrook")), sorted(value_kinds("canoe")), sorted(value_kinds("Oslo"))
    (['person'], ['thing'], [])
    """
    words = lexicon()
    parts = re.split(", | and ", value)
    if len(parts) > 1:
        return frozenset.intersection(*(value_kinds(part) for part in parts))
    if re.fullmatch(rf"\d{{1,2}} (?:{'|'.join(words.month)}) \d{{4}}", value):
        return frozenset({"date"})
    if value.isdecimal():
        return frozenset({"year" if len(value) == 4 else "number"})
    first, _, second = value.partition(" ")
    pairs = {
        "person": (words.given, words.family),
        "organisation": (words.organisation_first, words.organisation_second),
        "event": (words.event_first, words.event_second),
    }
    in_two = frozenset(
        kind for kind, (firsts, seconds) in pairs.items() if first in firsts and second in seconds
    )
    return in_two | _kinds().get(value, frozenset())
