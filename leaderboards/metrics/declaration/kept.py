"""The tokens that a branch of the cache has kept: the input of the routing metrics.

A slot is a (layer, head) pair of a layer that presses compress; they leave the sliding layers of Gemma 3 whole.
``keep``: bool, shape (layers, heads, tokens), which tokens survive in which slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Survival:
    """Holds what the metrics need of a keep mask, worked out once for all questions of a branch."""

    globally_evicted: npt.NDArray[np.bool_]  # shape (tokens,): survives in no slot
    evicted_by_layer: npt.NDArray[np.bool_]  # shape (layers, tokens): survives in no head of the layer
    heads: npt.NDArray[np.float64]  # shape (layers, tokens): the share of the heads of a layer in which it survives

    @classmethod
    def of(cls, keep: npt.NDArray[np.bool_]) -> "Survival":
        by_layer = np.logical_not(np.any(keep, axis=1))
        return cls(np.asarray(np.all(by_layer, axis=0)), np.asarray(by_layer), keep.mean(axis=1))


@dataclass(frozen=True)
class Kept:
    """Holds what survives, and the places of the tokens that one question is about."""

    survival: Survival
    context: Sequence[int]
    answer: Sequence[int]
    evidence: Sequence[int]
    defence: Sequence[int]
    directives: Sequence[int]
