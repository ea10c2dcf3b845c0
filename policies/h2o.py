"""H2O's prefill form: tokens scored by the attention that they received, without ever holding the attention matrix."""

from dataclasses import dataclass
from typing import Any

import torch
from kvpress import BasePress, ObservedAttentionPress
from kvpress.utils import get_prerope_query_states
from torch import nn
from transformers.models.llama.modeling_llama import rotate_half

from policies.attention import attention_window
from policies.policy import Baseline, Policy, Situation


@dataclass
class H2OPress(ObservedAttentionPress):
    """The scores of kvpress's ``ObservedAttentionPress`` on any attention backend, in O(seq_len * block) memory.

    Based on H2O (https://arxiv.org/abs/2306.14048). The scores need only the column sums of the attention matrix;
    they are summed over blocks of ``block_size`` queries.
    """

    block_size: int = 256

    def score(
        self,
        module: nn.Module,
        hidden_states: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attentions: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> torch.Tensor:
        """Mean attention received from the queries that can see each key, shape (batch_size, num_kv_heads, seq_len)."""
        batch, key_heads, length, _ = keys.shape
        queries = _rotated_queries(module, hidden_states, kwargs["position_embeddings"]).unflatten(1, (key_heads, -1))
        received = torch.zeros(batch, key_heads, length, dtype=torch.float32, device=keys.device)
        window = attention_window(module)
        for start in range(0, length, self.block_size):
            end = min(start + self.block_size, length)
            # (batch, key heads, group, block, end): a query sees no key behind the end of its block.
            logits = queries[:, :, :, start:end] @ keys[:, :, None, :end].transpose(-1, -2) * module.scaling
            query_position = torch.arange(start, end, device=keys.device)[:, None]
            key_position = torch.arange(end, device=keys.device)
            hidden = key_position > query_position
            if window is not None:
                hidden |= query_position - key_position >= window
            weights = torch.softmax(logits.masked_fill(hidden, float("-inf")), dim=-1, dtype=torch.float32)
            received[:, :, :end] += weights.mean(2).sum(2)
        seen_by = torch.arange(length, 0, -1, device=keys.device)
        return received / seen_by


def _rotated_queries(
    module: nn.Module, hidden_states: torch.Tensor, position_embeddings: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Queries of the layer after its rotary embedding, shape (batch_size, num_heads, seq_len, head_dim)."""
    queries = get_prerope_query_states(module, hidden_states)
    cos, sin = (part.unsqueeze(1) for part in position_embeddings)
    rotary = cos.shape[-1]  # smaller than the head where only a part of it is rotated (Phi)
    turned, kept = queries[..., :rotary], queries[..., rotary:]
    return torch.cat([turned * cos + rotate_half(turned) * sin, kept], dim=-1)


def _observed_attention(situation: Situation) -> BasePress:
    return ObservedAttentionPress(situation.ratio)


H2O = Policy(
    name="h2o",
    family="scorer",
    paper="arXiv 2306.14048",
    description="Attention received during the prefill (kvpress: ObservedAttentionPress)",
    build=lambda situation: H2OPress(situation.ratio),
    ratio_free_score=True,
    baseline=Baseline(_observed_attention, "eager"),
    by_default=True,
)
