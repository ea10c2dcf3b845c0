"""Routing metrics: pure functions of keep masks and evidence positions.

A slot is a (layer, head) pair. ``keep``: bool, shape (layers, heads, tokens), which tokens survive in which slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Survival:
    """What the metrics need of a keep mask, worked out once for all questions of a branch.

    ``globally_evicted``: bool (tokens,), survives in no slot. ``evicted_by_layer``: bool (layers, tokens), in no head
    of the layer. ``heads``: (layers, tokens), share of the heads of a layer in which it survives.
    """

    globally_evicted: npt.NDArray[np.bool_]
    evicted_by_layer: npt.NDArray[np.bool_]
    heads: npt.NDArray[np.float64]

    @classmethod
    def of(cls, keep: npt.NDArray[np.bool_]) -> "Survival":
        by_layer = np.logical_not(np.any(keep, axis=1))
        return cls(np.asarray(np.all(by_layer, axis=0)), np.asarray(by_layer), keep.mean(axis=1))


def eviction_rate(survival: Survival, context_tokens: Sequence[int]) -> float:
    """Mean of GlobalEvicted over the tokens of the context [arXiv 2603.01426]."""
    return float(survival.globally_evicted[list(context_tokens)].mean())


def global_eviction_ratio(survival: Survival, answer_tokens: Sequence[int]) -> float | None:
    """GER: mean of GlobalEvicted over the answer tokens [arXiv 2603.01426]; ``None`` if there is no answer.

    A union over slots: it looks perfect when each layer holds another fragment. Read it beside slot coverage.
    """
    if not answer_tokens:
        return None
    return float(survival.globally_evicted[list(answer_tokens)].mean())


def eviction_ratio_by_layer(survival: Survival, answer_tokens: Sequence[int]) -> list[float] | None:
    """GER of each layer alone: share of the answer tokens that survive in none of its heads."""
    if not answer_tokens:
        return None
    by_layer: list[float] = survival.evicted_by_layer[:, list(answer_tokens)].mean(axis=1).tolist()
    return by_layer


def slot_coverage(survival: Survival, tokens: Sequence[int]) -> float | None:
    """Mean survival of some tokens, such as the evidence, over all slots, in [0, 1]; ``None`` if there are none."""
    if not tokens:
        return None
    return float(survival.heads[:, list(tokens)].mean())


def kept_shares(survival: Survival, tokens: Sequence[int]) -> bytes:
    """Of each of some tokens, in which share of all slots it survives, in 255ths: 0 in none, 255 in all. Rounded up, so
    that 0 is GlobalEvicted and nothing else."""
    shares = np.ceil(255 * survival.heads.mean(axis=0)[list(tokens)] - 1e-9)
    packed: bytes = shares.astype(np.uint8).tobytes()
    return packed


def slot_coverage_by_layer(survival: Survival, tokens: Sequence[int]) -> list[float] | None:
    """The same for the heads of each layer alone."""
    if not tokens:
        return None
    by_layer: list[float] = survival.heads[:, list(tokens)].mean(axis=1).tolist()
    return by_layer
