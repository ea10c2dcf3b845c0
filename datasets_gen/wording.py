"""Several ways to say the same thing, some of which are kept from training."""

import random
from dataclasses import dataclass

from datasets_gen.taught import TAUGHT

TAUGHT_SHARE = 0.6  # of the texts of training


@dataclass(frozen=True)
class Phrasings:
    """Templates of one meaning. ``held_out``: never seen in training, so that they tell a skill from a formula."""

    common: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def taught(self) -> tuple[str, ...]:
        """What training shows beside the common ones, and no test."""
        return TAUGHT.get(self.common[0], ())


@dataclass(frozen=True)
class Wording:
    """Which phrasings a text is written in: the first ``count`` common ones, or those held out. ``taught``: where
    there is more than one, also those that training alone shows."""

    count: int
    held_out: bool = False
    taught: bool = False

    def choose(self, rng: random.Random, phrasings: Phrasings) -> str:
        if self.held_out:
            return rng.choice(phrasings.held_out)
        if self.taught and self.count > 1 and phrasings.taught and rng.random() < TAUGHT_SHARE:
            return rng.choice(phrasings.taught)
        return rng.choice(phrasings.common[: self.count])
