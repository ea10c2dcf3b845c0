"""Several ways to say the same thing, some of which are kept from training."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from datasets_gen.examples.loosening import loosened
from datasets_gen.examples.taught import taught_phrasings

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
