"""Several ways to say the same thing, some of which are kept from training."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# More ways to say and to ask the same, for training alone: no context of a test has them.
#
# A model that saw three phrasings knows three formulas. Those held out are no part of ``taught.json``; most of their
# words are, in other places of a sentence, or the model would have no idea what they mean.
#
# The phrasings live there by the first common one of the same meaning. A statement begins or goes on with
# ``{subject}`` where a pronoun could stand, or has it in "the ... of {subject}", or last: that is what ``coreference``
# turns into "he", "his" and "him".
Templates = tuple[str, ...]


@cache
def taught_phrasings() -> Mapping[str, Templates]:
    """Reads the phrasings, by the first common one of the same meaning."""
    content = json.loads(files("datasets_gen.examples").joinpath("taught.json").read_text(encoding="utf-8"))
    return {first: tuple(others) for first, others in content.items()}


# Sentences of no template, for training alone: pieces of several phrasings of one meaning, and words that are out of
# place.
#
# A model that saw a dozen phrasings still knows a dozen formulas: it answered "Which animal does Ada Falbrook keep?"
# and "Which creature is looked after by Ada Falbrook?", and took "Which animal does Ada Falbrook look after?" for a
# question that nothing answers. What is never said twice in the same words can only be understood by those that
# matter.

MIXED_SHARE = 0.6  # of the loosened sentences consist of pieces of several phrasings
CHANGED_SHARE = 0.1  # of the words of a loosened sentence are left out, replaced or preceded by another
ATTEMPTS = 4  # at a mixture that still says what is meant
MANY = 8  # meanings with the same slots, of which two may share a telling word

_SLOT = re.compile(r"(\{\w+\})")
_WORD = re.compile(r"[A-Za-z']+")
# Before a slot they belong to it: "a" agrees with it, and a pronoun takes the place of "the ... of {subject}".
_BOUND = frozenset(("a", "an", "the", "of"))
_ORDER = frozenset(("first", "last", "earliest", "latest", "recently"))  # tell which of several facts is asked for


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


@cache
def _telling_words() -> Mapping[str, frozenset[str]]:
    """Returns, by the first phrasing of a meaning, the words that hardly another meaning with the same slots has."""
    taught = taught_phrasings()
    said = {first: words_of(" ".join((first, *others))) for first, others in taught.items()}
    slots = {first: frozenset(_SLOT.findall(first)) for first in taught}
    families = {one: [first for first in taught if slots[first] == one] for one in set(slots.values())}
    counts = {one: Counter(word for first in family for word in said[first]) for one, family in families.items()}
    return {
        first: frozenset(
            word
            for word in said[first]
            if counts[slots[first]][word] <= (2 if len(families[slots[first]]) >= MANY else 1)
        )
        for first in taught
    }


@cache
def _all_words() -> tuple[str, ...]:
    """Returns the words of all the templates in which someone or something is spoken of."""
    return tuple(sorted(set().union(*(words_of(first) for first in taught_phrasings() if "{" in first))))


TAUGHT_SHARE = 0.6  # of the texts of training
LOOSE_SHARE = 0.6  # of these


@dataclass(frozen=True)
class Phrasings:
    """Templates of one meaning."""

    common: tuple[str, ...]
    held_out: tuple[str, ...]  # never seen in training, so that they tell a skill from a formula
    answer_prefix: str = ""  # of questions: it begins the sentence that states the answer, whichever phrasing asks

    @property
    def taught(self) -> tuple[str, ...]:
        """Lists the phrasings that training shows beside the common ones, and no test."""
        return taught_phrasings().get(self.common[0], ())


def phrasings(*common: str, held_out: Iterable[str], answer_prefix: str = "") -> Phrasings:
    return Phrasings(common, tuple(held_out), answer_prefix)


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
