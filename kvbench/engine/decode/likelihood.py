"""Measures how likely right answers are to a branch that is made to write them."""

import math
from collections.abc import Sequence

import torch
from torch.nn import functional as F


class GoldLikelihood:
    """Sums up the mean negative log-likelihood of the tokens of right answers, in nats a token.

    ``golds``: by answer, its tokens; none where nothing is measured. ``forced``: by answer, whether its tokens are
    passed one by one; of all others, the tokens after the first come by :meth:`add`.
    """

    def __init__(self, golds: Sequence[Sequence[int]], forced: Sequence[bool], device: torch.device) -> None:
        self.device = device
        self.lengths = [len(gold) for gold in golds]
        longest = max(1, *self.lengths)
        self._tokens = torch.tensor([[*gold, *[0] * (longest - len(gold))] for gold in golds], device=device)
        # How many of the tokens are met in the steps of the loop.
        met = [length if by_step else min(1, length) for length, by_step in zip(self.lengths, forced, strict=True)]
        self._met = torch.tensor(met, device=device)
        self._steps = max(met)
        self._total = torch.zeros(len(golds), dtype=torch.float64, device=device)

    def see(self, step: int, numbers: torch.Tensor, logits: torch.Tensor) -> None:
        """Takes the logits, shape (answers, vocabulary), from which token ``step`` of these answers is chosen."""
        if step < self._steps:
            self.add(numbers, logits, self.targets(step, numbers), self._met[numbers] > step)

    def add(self, numbers: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor, counted: torch.Tensor) -> None:
        """Takes logits, shape (tokens, vocabulary), and the tokens that follow; ``counted``: bool (tokens,)."""
        nats = F.cross_entropy(logits.float(), targets, reduction="none")
        self._total.index_add_(0, numbers, torch.where(counted, nats, 0.0).double())

    def targets(self, step: int, numbers: torch.Tensor) -> torch.Tensor:
        """Returns token ``step`` of the right answers, and anything behind their ends."""
        return self._tokens[numbers, min(step, self._tokens.shape[1] - 1)]

    def means(self) -> list[float | None]:
        """Returns the mean of each answer; ``None`` where nothing is measured, or where a damaged cache gives NaN."""
        totals = self._total.tolist()
        means = [total / length if length else math.nan for total, length in zip(totals, self.lengths, strict=True)]
        return [mean if math.isfinite(mean) else None for mean in means]
