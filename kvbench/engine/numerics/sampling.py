"""Chooses the next token from a row of logits. Two paths at one step meet the same random numbers, so that they choose
otherwise only where their logits differ."""

from collections.abc import Callable

import numpy as np
import torch

from kvbench.engine.numerics.measures import log_probabilities
from policies.declaration.draws import seed_of

TOP_K, TOP_P, TEMPERATURE = 50, 0.9, 0.7
Choose = Callable[[torch.Tensor, int], int]  # from logits of shape (vocabulary,), at a step


def sampler(name: str, seed: int, question_id: str, draw: int) -> Choose:
    """Returns a way to choose: ``greedy``, ``top_k`` (50 tokens at temperature 0.7) or ``top_p`` (0.9 at 0.7).

    Of random ways each step has a seed. The token is the one with the largest p / E, where E is exponential noise by
    token: as torch draws, and as the Gumbel trick does. Another rule, the first token whose cumulative p passes a
    random number, would let the order of two close tokens decide.
    """
    if name == "greedy":
        return lambda row, _: int(row.argmax())
    keep = {"top_k": _top_k, "top_p": _top_p}[name]

    def choose(row: torch.Tensor, step: int) -> int:
        kept = keep(log_probabilities(row / TEMPERATURE))
        random = np.random.default_rng(seed_of(seed, question_id, f"{name} {draw} {step}"))
        noise = torch.from_numpy(random.exponential(size=len(row))).to(row.device)
        return int((kept - noise.log()).argmax())

    return choose


def _top_k(log_p: torch.Tensor) -> torch.Tensor:
    least = log_p.topk(min(TOP_K, len(log_p))).values[-1]
    return torch.where(log_p >= least, log_p, -torch.inf)


def _top_p(log_p: torch.Tensor) -> torch.Tensor:
    """Leaves the fewest most likely tokens that have 0.9 together."""
    ordered = log_p.sort(descending=True).values
    before = ordered.exp().cumsum(-1) - ordered.exp()
    least = ordered[before < TOP_P][-1]
    return torch.where(log_p >= least, log_p, -torch.inf)
