"""Compares two rows of logits over the whole vocabulary in float64, and chooses the next token from one."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from policies.declaration.draws import seed_of

TOP_K, TOP_P, TEMPERATURE = 50, 0.9, 0.7
Choose = Callable[[torch.Tensor, int], int]  # from logits of shape (vocabulary,), at a step


@dataclass(frozen=True)
class Difference:
    """Holds how far a second row of logits is from a first; all is NaN where a logit of either is not finite."""

    kl: float  # KL(first || second), in nats
    largest: float  # |log p - log q|, over the vocabulary, in nats
    same_top: bool  # both have the same most likely token
    margin: float  # of the first row: its largest logit less the next


UNKNOWN = Difference(math.nan, math.nan, False, math.nan)


def difference(first: torch.Tensor, second: torch.Tensor) -> Difference:
    """Compares two rows of logits of shape (vocabulary,), which may be of any dtype and lie on any device."""
    if not bool(torch.isfinite(first).all() & torch.isfinite(second).all()):
        return UNKNOWN
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    best, next_best = first.double().topk(2).values.tolist()
    return Difference(
        kl=divergence(log_p, log_q),
        largest=float((log_p - log_q).abs().max()),
        same_top=int(first.argmax()) == int(second.argmax()),
        margin=best - next_best,
    )


def log_probabilities(row: torch.Tensor) -> torch.Tensor:
    """Returns the logarithms of the probabilities that logits stand for, in float64."""
    return torch.log_softmax(row.double(), -1)


def divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> float:
    """Returns KL(p || q) in nats.

    It adds up p (d + exp(-d) - 1) with d = log p - log q, which comes to the same as p d, since p and q both sum to 1.
    No term is negative, so that nothing cancels: rounding of float32 moves log p by 1e-6, the divergence is 1e-12, and
    a sum over p d would have an error of the same size. Equal rows give exactly 0.
    """
    apart = log_p - log_q
    return float((log_p.exp() * (apart + torch.expm1(-apart))).sum().clamp(min=0.0))


def sampler(name: str, seed: int, question_id: str, draw: int) -> Choose:
    """Returns a way to choose: ``greedy``, ``top_k`` (50 tokens at temperature 0.7) or ``top_p`` (0.9 at 0.7).

    Two paths at one step meet the same random numbers, so that they choose otherwise only where their logits differ.
    The token is the one with the largest p / E, where E is exponential noise by token: as torch draws, and as the
    Gumbel trick does. Another rule, the first token whose cumulative p passes a random number, would let the order of
    two close tokens decide.
    """
    if name == "greedy":
        return lambda row, _: int(row.argmax())

    def choose(row: torch.Tensor, step: int) -> int:
        log_p = log_probabilities(row / TEMPERATURE)
        ordered = log_p.sort(descending=True).values
        if name == "top_k":
            least = ordered[min(TOP_K, len(ordered)) - 1]
        else:  # the fewest most likely tokens that have 0.9 together
            least = ordered[ordered.exp().cumsum(-1) - ordered.exp() < TOP_P][-1]
        random = np.random.default_rng(seed_of(seed, question_id, f"{name} {draw} {step}"))
        noise = torch.from_numpy(random.exponential(size=len(row))).to(row.device)
        return int((torch.where(log_p >= least, log_p, -torch.inf) - noise.log()).argmax())

    return choose
