"""Measures how likely right answers are to a branch that is made to write them."""

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from kvbench.engine.decode.generation import GoldTokens


class GoldLikelihood:
    """Notes of each token of right answers how unlikely it is, in nats, and whether it is the most likely one.

    ``golds``: by answer, its tokens; none where nothing is measured. ``forced``: by answer, whether its tokens are
    passed one by one; of all others, the tokens after the first come by :meth:`add`.
    """

    def __init__(self, golds: Sequence[Sequence[int]], forced: Sequence[bool], device: torch.device) -> None:
        self.device = device
        self.lengths = [len(gold) for gold in golds]
        self._longest = max(1, *self.lengths)
        padded = [[*gold, *[0] * (self._longest - len(gold))] for gold in golds]
        self._tokens = torch.tensor(padded, device=device)
        # How many of the tokens are met in the steps of the loop.
        met = [length if by_step else min(1, length) for length, by_step in zip(self.lengths, forced, strict=True)]
        self._met = torch.tensor(met, device=device)
        self._steps = max(met)
        # By answer and place; the last column takes what is not counted, as to leave it out would wait for the device.
        shape = len(golds), self._longest + 1
        self._nats = torch.zeros(shape, dtype=torch.float64, device=device)
        self._right = torch.zeros(shape, dtype=torch.bool, device=device)

    def see(self, step: int, numbers: torch.Tensor, logits: torch.Tensor) -> None:
        """Takes the logits, shape (answers, vocabulary), from which token ``step`` of these answers is chosen."""
        if step < self._steps:
            places = torch.full_like(numbers, step)
            self.add(numbers, places, logits, self.targets(step, numbers), self._met[numbers] > step)

    def add(
        self,
        numbers: torch.Tensor,
        places: torch.Tensor,
        logits: torch.Tensor,
        targets: torch.Tensor,
        counted: torch.Tensor,
    ) -> None:
        """Takes logits, shape (tokens, vocabulary), and the tokens that follow, each with its place in the right
        answer; ``counted``: bool (tokens,)."""
        nats = F.cross_entropy(logits.float(), targets, reduction="none")
        places = torch.where(counted, places, self._longest)
        self._nats[numbers, places] = nats.double()
        self._right[numbers, places] = (logits.argmax(-1) == targets) & nats.isfinite()  # NaN counts as the largest

    def targets(self, step: int, numbers: torch.Tensor) -> torch.Tensor:
        """Returns token ``step`` of the right answers, and anything behind their ends."""
        return self._tokens[numbers, min(step, self._tokens.shape[1] - 1)]

    def tokens(self) -> list[GoldTokens | None]:
        """Returns what is noted of each answer; ``None`` where nothing is measured."""
        notes = zip(self.lengths, self._nats.tolist(), self._right.tolist(), strict=True)
        return [
            GoldTokens(tuple(nats[:length]), tuple(right[:length])) if length else None for length, nats, right in notes
        ]
