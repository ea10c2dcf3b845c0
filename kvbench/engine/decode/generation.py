"""What was decoded for one question from one branch."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from kvbench.engine.treat.branch import Branch


@dataclass(frozen=True)
class Remains:
    """What a press that acts while an answer is written has left at its end.

    ``keep``: by layer bool (num_kv_heads, seq_len), which tokens of the context survive; ``None`` where it rewrites.
    ``rows``: key rows over all layers and heads, those of question and answer included; ``tokens``: how many it read;
    ``digest``: of what is held.
    """

    keep: tuple[torch.Tensor, ...] | None
    rows: int
    tokens: int
    digest: str


@dataclass(frozen=True)
class Generation:
    """``question``: its number in the prompt. ``token_ids`` holds the end token, if one came. ``seconds``: the
    question's equal share of the time of all that were decoded together. ``halvings``: how often waves had been halved
    by then, as memory ended. ``gold_nll``: mean negative log-likelihood of the right answer's tokens, in nats; ``None``
    where it is not measured."""

    branch: Branch
    question: int
    token_ids: tuple[int, ...]
    ended: bool
    seconds: float
    remains: Remains | None = None
    halvings: int = 0
    gold_nll: float | None = None


def until_end(token_ids: Sequence[int], ends: Collection[int]) -> list[int]:
    """Up to and including the first end token."""
    length = next((place + 1 for place, token in enumerate(token_ids) if token in ends), len(token_ids))
    return list(token_ids[:length])
