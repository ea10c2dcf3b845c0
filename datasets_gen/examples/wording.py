"""Several ways to say the same thing, some of which are kept from training."""

import random
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Phrasings:
    """Templates of one meaning."""

    common: tuple[str, ...]
    held_out: tuple[str, ...]  # never seen in training, so that they tell a skill from a formula


def phrasings(*common: str, held_out: Iterable[str]) -> Phrasings:
    return Phrasings(common, tuple(held_out))


@dataclass(frozen=True)
class Wording:
    """Chooses the phrasings of a text: the first ``count`` common ones, or the held-out ones."""

    count: int
    held_out: bool = False

    def choose(self, rng: random.Random, phrasings: Phrasings) -> str:
        return rng.choice(phrasings.held_out if self.held_out else phrasings.common[: self.count])
