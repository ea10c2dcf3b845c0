"""Several ways to say the same thing, some of which are kept from training.

They live in ``phrasings.json``. A statement begins or goes on with ``{subject}`` where a pronoun
could stand, or has it in "the ... of {subject}", or last: that is what ``coreference`` turns into
"he", "his" and "him"."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Phrasings:
    """Templates of one meaning."""

    common: tuple[str, ...]
    held_out: tuple[str, ...]  # never seen in training, so that they tell a skill from a formula
    answer_prefix: str = (
        ""  # of questions: it begins the sentence that states the answer, whichever phrasing asks
    )


@cache
def tables() -> Mapping[str, Any]:
    """Reads the file of phrasings, by section."""
    content: Mapping[str, Any] = json.loads(
        files(__package__).joinpath("phrasings.json").read_text(encoding="utf-8")
    )
    return content


def read_phrasings(section: str) -> dict[str, Phrasings]:
    return TypeAdapter(dict[str, Phrasings]).validate_python(tables()[section])


@dataclass(frozen=True)
class QuestionText:
    """A question and its answer prefix, or the templates of both."""

    text: str
    answer_prefix: str = ""

    def format(self, **words: str) -> "QuestionText":
        """Fills in the words. A prefix may begin with a subject such as "the mentor of Ada
        Falbrook"."""
        prefix = self.answer_prefix.format(**words)
        # Not capitalize, which would write the rest of a name in small letters.
        return QuestionText(self.text.format(**words), prefix[:1].upper() + prefix[1:])


@dataclass(frozen=True)
class Wording:
    """Chooses the phrasings of a text: the first ``count`` common ones, or the held-out ones."""

    count: int
    held_out: bool = False

    def choose(self, rng: random.Random, phrasings: Phrasings) -> str:
        # The first ones are part of every level, so that a higher level adds phrasings and drops
        # none.
        return rng.choice(phrasings.held_out if self.held_out else phrasings.common[: self.count])

    def choose_question(self, rng: random.Random, phrasings: Phrasings) -> QuestionText:
        """Chooses a phrasing; the answer prefix is that of all of them, and takes no random
        number."""
        return QuestionText(self.choose(rng, phrasings), phrasings.answer_prefix)
