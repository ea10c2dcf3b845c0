"""A generation holds what was decoded for one question from one branch."""

import math
from dataclasses import dataclass

import torch

from kvbench.engine.treat.branch import Branch


@dataclass(frozen=True)
class FinalCache:
    """Describes the cache at the end of an answer whose press acts while it is written."""

    # By layer that presses compress bool (num_kv_heads, seq_len), which tokens of the context survive; None where the
    # press rewrites.
    keep: tuple[torch.Tensor, ...] | None
    rows: int  # of keys over all heads of these layers, with the rows of question and answer
    tokens: int  # that the model read
    digest: str  # a hash of the cache


@dataclass(frozen=True)
class GoldTokens:
    """Tells of each token of a right answer, in their order, how likely it is behind those before it."""

    nats: tuple[float, ...]  # its negative log-likelihood; infinite or NaN where a damaged cache makes it so
    right: tuple[bool, ...]  # it is the most likely token

    @property
    def mean_nats(self) -> float | None:
        """Returns the mean over the tokens, or ``None`` where it is no number."""
        mean = sum(self.nats) / len(self.nats)
        return mean if math.isfinite(mean) else None

    def part(self, start: int, end: int) -> "GoldTokens":
        return GoldTokens(self.nats[start:end], self.right[start:end])

    @property
    def accuracy(self) -> float:
        return sum(self.right) / len(self.right)


@dataclass(frozen=True)
class Generation:
    """Holds the answer to one question."""

    branch: Branch
    question: int  # its number in the prompt
    token_ids: tuple[int, ...]  # with the end token, if one came
    ended: bool
    seconds: float  # an equal share of the time of all answers that were decoded together
    final_cache: FinalCache | None = None  # where a press acts while the answer is written
    finite: bool = True  # no logit that a token was chosen from was infinite or NaN
    halvings: int = 0  # how often waves had been halved by then, as memory ended
    gold: GoldTokens | None = None  # of the right answer, where it is measured

    @property
    def gold_nll(self) -> float | None:
        """Returns the mean negative log-likelihood of the right answer's tokens in nats."""
        return self.gold.mean_nats if self.gold else None
