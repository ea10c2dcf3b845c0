"""Several ways to say the same thing, some of which are kept from training.

They live in ``phrasings.json``. A statement begins or goes on with ``{subject}`` where a pronoun could stand, or has it
in "the ... of {subject}", or last: that is what ``coreference`` turns into "he", "his" and "him".
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter

# Training also shows sentences of no template: pieces of several phrasings of one meaning, and words that are out of
# place. A model that saw a dozen phrasings still knew a dozen formulas: it answered "Which animal does Ada Falbrook
# keep?" and took "Which animal does Ada Falbrook look after?" for a question that nothing answers.
MIXED_SHARE = 0.6  # of the loosened sentences consist of pieces of several phrasings
CHANGED_SHARE = 0.1  # of the words of a loosened sentence are left out, replaced or preceded by another
ATTEMPTS = 4  # at a mixture that still says what is meant
MANY = 8  # meanings with the same slots, of which two may share a telling word
TAUGHT_SHARE = 0.6  # of the texts of training
LOOSE_SHARE = 0.6  # of these

_SLOT = re.compile(r"(\{\w+\})")
_WORD = re.compile(r"[A-Za-z']+")
# Before a slot they belong to it: "a" agrees with it, and a pronoun takes the place of "the ... of {subject}".
_BOUND = frozenset(("a", "an", "the", "of"))
_ORDER = frozenset(("first", "last", "earliest", "latest", "recently"))  # tell which of several facts is asked for


@dataclass(frozen=True)
class Phrasings:
    """Templates of one meaning."""

    common: tuple[str, ...]
    held_out: tuple[str, ...]  # never seen in training, so that they tell a skill from a formula
    answer_prefix: str = ""  # of questions: it begins the sentence that states the answer, whichever phrasing asks
    taught: tuple[str, ...] = ()  # that training shows beside the common ones, and no test


@cache
def tables() -> Mapping[str, Any]:
    """Reads the file of phrasings, by section."""
    content: Mapping[str, Any] = json.loads(files(__package__).joinpath("phrasings.json").read_text(encoding="utf-8"))
    return content


def phrasings_of(section: str) -> dict[str, Phrasings]:
    return TypeAdapter(dict[str, Phrasings]).validate_python(tables()[section])


def loosened(rng: random.Random, templates: tuple[str, ...], forbidden: Iterable[str]) -> str:
    """Returns a sentence of the meaning of these templates that is mostly none of them, and none of the forbidden."""
    words = _telling_words()[templates[0]]
    template = rng.choice(templates)
    if rng.random() < MIXED_SHARE:
        template = _mixed(rng, templates, template, words)
    template = _changed(rng, template, words)
    return rng.choice(templates) if template in forbidden else template


def _mixed(rng: random.Random, templates: tuple[str, ...], template: str, telling: frozenset[str]) -> str:
    """Puts a sentence together from pieces of all the templates that have the slots of this one in the same order."""
    places = _pieces(templates)[tuple(_SLOT.findall(template))]
    for _ in range(ATTEMPTS):
        mixture = "".join(rng.choice(pieces) for pieces in places)
        if telling & words_of(mixture):
            return mixture
    return template


@cache  # a meaning is drawn thousands of times
def _pieces(templates: tuple[str, ...]) -> Mapping[tuple[str, ...], Sequence[tuple[str, ...]]]:
    """Returns, by their slots in order, what the templates have at each place between the slots, and the slots."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for template in templates:
        alike.setdefault(tuple(_SLOT.findall(template)), []).append(_SLOT.split(template))
    return {slots: list(zip(*split, strict=True)) for slots, split in alike.items()}


def _changed(rng: random.Random, template: str, telling: frozenset[str]) -> str:
    """Leaves out, replaces and puts in words, but never the last one that tells what is meant."""
    if not telling:
        return template
    words = template.split(" ")
    left = sum(word.lower() in telling for word in words)
    changed: list[str] = []
    for number, word in enumerate(words):
        following = words[number + 1 : number + 2]
        bound = word in _BOUND and following and "{" in following[0]
        last = word.lower() in telling and left <= 1
        if number == 0 or bound or last or word in _ORDER or not _WORD.fullmatch(word) or rng.random() >= CHANGED_SHARE:
            changed.append(word)
            continue
        left -= word.lower() in telling
        changed += rng.choice(([], [rng.choice(_all_words())], [rng.choice(_all_words()), word]))
    return " ".join(changed)


def words_of(template: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_SLOT.sub(" ", template).lower()))


def _meanings(table: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the first phrasing of every meaning in a part of the file, and those that training alone shows."""
    if isinstance(table, dict) and "common" in table:
        yield table["common"][0], tuple(table.get("taught", ()))
    elif isinstance(table, dict):
        for part in table.values():
            yield from _meanings(part)


@cache
def _telling_words() -> Mapping[str, frozenset[str]]:
    """Returns, by the first phrasing of a meaning, the words that hardly another meaning with the same slots has."""
    said = {first: words_of(" ".join((first, *taught))) for first, taught in _meanings(tables())}
    slots = {first: frozenset(_SLOT.findall(first)) for first in said}
    sizes = Counter(slots.values())
    counts = Counter((slots[first], word) for first, words in said.items() for word in words)
    most = {one: 2 if size >= MANY else 1 for one, size in sizes.items()}
    return {
        first: frozenset(word for word in words if counts[slots[first], word] <= most[slots[first]])
        for first, words in said.items()
    }


@cache
def _all_words() -> tuple[str, ...]:
    """Returns the words of all the templates in which someone or something is spoken of."""
    return tuple(sorted(set().union(*(words_of(first) for first, _ in _meanings(tables()) if "{" in first))))


@dataclass(frozen=True)
class QuestionText:
    """A question and its answer prefix, or the templates of both."""

    text: str
    answer_prefix: str = ""

    def format(self, **words: str) -> "QuestionText":
        """Fills in the words. The prefix begins a sentence, and a subject such as "the mentor of Ada Falbrook" may
        stand first in it."""
        prefix = self.answer_prefix.format(**words)
        return QuestionText(self.text.format(**words), prefix[:1].upper() + prefix[1:])


@dataclass(frozen=True)
class Wording:
    """Chooses the phrasings of a text: the first ``count`` common ones, or the held-out ones."""

    count: int
    held_out: bool = False
    taught: bool = False  # where there is more than one, it takes those too that training alone shows

    def choose(self, rng: random.Random, phrasings: Phrasings) -> str:
        if self.held_out:
            return rng.choice(phrasings.held_out)
        if self.taught and self.count > 1 and phrasings.taught and rng.random() < TAUGHT_SHARE:
            if rng.random() < LOOSE_SHARE:
                return loosened(rng, (*phrasings.common, *phrasings.taught), phrasings.held_out)
            return rng.choice(phrasings.taught)
        return rng.choice(phrasings.common[: self.count])

    def choose_question(self, rng: random.Random, phrasings: Phrasings) -> QuestionText:
        """Chooses a phrasing; the answer prefix is that of all of them, and takes no random number."""
        return QuestionText(self.choose(rng, phrasings), phrasings.answer_prefix)
