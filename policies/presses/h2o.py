"""H2O's prefill form: tokens scored by the attention that they received, without ever holding the
attention matrix."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from kvpress import ObservedAttentionPress
from kvpress.utils import get_prerope_query_states
from torch import nn
from transformers.models.llama.modeling_llama import rotate_half

from policies.declaration.shape import attention_window

WEIGHTS_AT_ONCE = 2**24  # attention weights in memory together, over all heads: 64 MiB in float32
REACH = 1024  # tokens: keys are read up to a multiple of it
BLOCK = 256  # queries
Rotation = tuple[torch.Tensor, torch.Tensor]  # cosines and sines of all places


@dataclass
class H2OPress(ObservedAttentionPress):
    """The scores of kvpress's ``ObservedAttentionPress`` on any attention backend, in O(seq_len *
    block) memory.

    Based on H2O (https://arxiv.org/abs/2306.14048). The scores need only the column sums of the
    attention matrix; they are summed over blocks of ``block_size`` queries, fewer where
    :data:`WEIGHTS_AT_ONCE` says so."""

    block_size: int = BLOCK

    def score(
        self,
        module: Any,
        hidden_states: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attentions: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> torch.Tensor:
        """Returns the mean attention from queries that see each key, shape (batch_size,
        num_kv_heads, seq_len)."""
        batch, key_heads, length, _ = keys.shape
        # In float32 whatever the model has: in bfloat16 a sum stops growing at 256 of its terms.
        received = torch.zeros(batch, key_heads, length, dtype=torch.float32, device=keys.device)
        for block in query_blocks(module, keys, self.block_size):
            weights = attention_weights(
                module, hidden_states, keys, kwargs["position_embeddings"], block
            )
            # Over the queries a sum, over the query heads that share a key a mean, as in kvpress.
            received[:, :, : weights.shape[-1]] += weights.sum((2, 3)) / weights.shape[2]
        # The first token is seen by every query and the last by one, or early tokens would always
        # win.
        seen_by = torch.arange(length, 0, -1, device=keys.device)
        return received / seen_by


def query_blocks(
    module: Any, keys: torch.Tensor, block_size: int = BLOCK, edges: Sequence[int] = ()
) -> Iterator[slice]:
    """Yields blocks of queries whose weights fit into memory together; none reaches over one of the
    ``edges``.

    ``keys``: (batch_size, num_kv_heads, tokens, head_dim).
    """
    batch, _, length, _ = keys.shape
    weights_of_query = batch * module.config.num_attention_heads * length
    size = max(1, min(block_size, WEIGHTS_AT_ONCE // weights_of_query))
    borders = sorted({0, *edges, length})
    for first, last in pairwise(borders):
        for start in range(first, last, size):
            yield slice(start, min(start + size, last))


def attention_weights(
    module: Any, hidden_states: torch.Tensor, keys: torch.Tensor, rotation: Rotation, at: slice
) -> torch.Tensor:
    """Computes what the queries at some places attend to, as the layer does, in float32.

    ``hidden_states``: (batch_size, tokens, hidden_size). ``keys``: (batch_size, num_kv_heads,
    tokens, head_dim). Returns (batch_size, num_kv_heads, query heads of each, places, keys). Keys
    reach to the last of the places or beyond it.
    """
    _, key_heads, length, _ = keys.shape
    start, end = at.start, at.stop
    queries = _rotated_queries(module, hidden_states, rotation, at)
    # The heads of a group share a key: folded into the queries, they need no copies of it. No query
    # of a block sees a key behind its end; but oneDNN keeps memory for every shape that it has met,
    # so they are few.
    reach = min(length, -(-end // REACH) * REACH)
    folded = queries.unflatten(1, (key_heads, -1)).flatten(2, 3)
    weights = folded @ keys[:, :, :reach].transpose(-1, -2)
    weights = weights.mul_(module.scaling).unflatten(2, (-1, end - start))
    query_position = torch.arange(start, end, device=keys.device)[:, None]
    key_position = torch.arange(reach, device=keys.device)
    # Keys before the block are seen by all of its queries: only those from its start on are
    # compared.
    later = key_position[start:] > query_position
    weights[..., start:].masked_fill_(later, float("-inf"))
    window = attention_window(module)
    if window is not None:
        outside = query_position - key_position >= window
        weights.masked_fill_(outside, float("-inf"))
    return torch.softmax(weights, dim=-1, dtype=torch.float32)


def _rotated_queries(
    module: nn.Module, hidden_states: torch.Tensor, rotation: Rotation, at: slice
) -> torch.Tensor:
    """Computes the layer's queries after its rotary embedding, shape (batch_size, num_heads,
    places, head_dim).

    All of a long context at once would take more memory than their weights in blocks."""
    # kvpress knows the projections of each architecture, and those that are one matrix, as in Phi.
    queries = get_prerope_query_states(module, hidden_states[:, at])
    cosines, sines = rotation
    cos = cosines[:, at].unsqueeze(1)
    sin = sines[:, at].unsqueeze(1)
    rotary = cos.shape[-1]  # smaller than the head where only a part of it is rotated (Phi)
    turned, kept = queries[..., :rotary], queries[..., rotary:]
    rotated = turned * cos + rotate_half(turned) * sin
    return torch.cat([rotated, kept], dim=-1)
