"""An attention that shows its weights to a watcher, for passes beside those that decode.

It changes nothing of how answers are written: what is of interest is passed through the model once more, over the keys
and values that were read.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from transformers import AttentionInterface

from kvbench.models.load import LoadedModel, attention

OBSERVED_ATTENTION = "kvbench_observed"


class Watcher(Protocol):
    """Computes the attention of a layer, and notes what it likes of it."""

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """Returns what the queries read, shape (heads, tokens, head_dim) as ``query``.

        ``key`` and ``value``: those of the same tokens, shape (num_kv_heads, tokens, head_dim).
        """


def observed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    watchers: Sequence[Watcher] = (),
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Has each watcher compute the attention of one sequence; all have the shape (sequences, heads, tokens,
    head_dim)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    sequences = zip(watchers, query, key, value, strict=True)
    outputs = [watcher.attend(module.layer_idx, q, k, v, scale) for watcher, q, k, v in sequences]
    return torch.stack(outputs).transpose(1, 2), None


@contextmanager
def observed(model: LoadedModel) -> Iterator[None]:
    """Has the network use this attention inside a ``with`` block; waves may be under way, with one of their own."""
    AttentionInterface.register(OBSERVED_ATTENTION, observed_attention)
    with attention(model.network, OBSERVED_ATTENTION):
        yield


def weights_of(query: torch.Tensor, keys: torch.Tensor, seen: torch.Tensor, scaling: float) -> torch.Tensor:
    """Returns the softmax of queries over the keys that they see, in float32 as transformers' eager attention: shape
    (..., queries, keys).

    ``query``: (..., queries, head_dim). ``keys``: (..., keys, head_dim). ``seen``: bool (..., queries, keys).
    """
    scores = (query @ keys.mT) * scaling
    return scores.masked_fill(~seen, float("-inf")).softmax(-1, dtype=torch.float32)
