"""Compares two rows of logits over the whole vocabulary, in float64; nothing is kept but a handful of numbers."""

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Difference:
    """Tells how far a second row of logits is from a first; all is NaN where a logit of either is not finite."""

    kl: float  # KL(first || second), in nats
    js: float  # the divergence of Jensen and Shannon, in nats: at most ln 2
    largest: float  # |log p - log q|, over the vocabulary, in nats
    mean_difference: float  # the same, mean over the vocabulary
    same_top: bool  # both have the same most likely token
    margin: float  # of the first row: its largest logit less the next
    other_margin: float  # of the second


UNKNOWN = Difference(math.nan, math.nan, math.nan, math.nan, False, math.nan, math.nan)


def difference(first: torch.Tensor, second: torch.Tensor) -> Difference:
    """Compares two rows of logits of shape (vocabulary,), which may be of any dtype and lie on any device."""
    if not bool(torch.isfinite(first).all() & torch.isfinite(second).all()):
        return UNKNOWN
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    apart = (log_p - log_q).abs()
    log_mean = torch.maximum(log_p, log_q) + torch.log1p(torch.expm1(-apart) / 2)  # exactly log p where both are equal
    return Difference(
        kl=divergence(log_p, log_q),
        js=(divergence(log_p, log_mean) + divergence(log_q, log_mean)) / 2,
        largest=float(apart.max()),
        mean_difference=float(apart.mean()),
        same_top=int(first.argmax()) == int(second.argmax()),
        margin=_margin(first),
        other_margin=_margin(second),
    )


def log_probabilities(row: torch.Tensor) -> torch.Tensor:
    """Returns the logarithms of the probabilities that logits stand for, in float64."""
    return torch.log_softmax(row.double(), -1)


def divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> float:
    """Returns KL(p || q) in nats."""
    return float(divergences(log_p, log_q))


def divergences(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Returns KL(p || q) in nats along the last dimension.

    It adds up p (d + exp(-d) - 1) with d = log p - log q, which comes to the same as p d, since p and q both sum to 1.
    No term is negative, so that nothing cancels: rounding of float32 moves log p by 1e-6, the divergence is 1e-12, and
    a sum over p d would have an error of the same size. Equal rows give exactly 0.
    """
    apart = log_p - log_q
    return (log_p.exp() * (apart + torch.expm1(-apart))).sum(-1).clamp(min=0.0)


def _margin(row: torch.Tensor) -> float:
    first, second = row.double().topk(2).values.tolist()
    return float(first - second)
