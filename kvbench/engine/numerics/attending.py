"""An attention that computes in float32, or notes what the last token attends to; otherwise it is transformers' own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from kvbench.models.load import attention

NUMERICS_ATTENTION = "kvbench_numerics"


def numerics_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    log_weights: list[torch.Tensor] | None = None,
    in_float32: bool = False,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attends as transformers does, to states of shape (sequences, heads, tokens, head_dim).

    ``log_weights``: receives the logarithm of the attention of the last token of the first sequence, in float64, shape
    (heads, tokens).
    ``in_float32``: states of 16 bits are multiplied in float32, and what is read is rounded once, at the end.
    """
    if log_weights is not None:
        groups = query.shape[1] // key.shape[1]
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        scores = key[0].double().repeat_interleave(groups, 0) @ query[0, :, -1, :, None].double()
        log_weights.append((scores[..., 0] * scale).log_softmax(-1))
    dtype = query.dtype
    if in_float32:
        query, key, value = query.float(), key.float(), value.float()
    output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
    return output.to(dtype), None


@contextmanager
def attending(network: PreTrainedModel) -> Iterator[None]:
    """Has a network use this attention inside a ``with`` block."""
    AttentionInterface.register(NUMERICS_ATTENTION, numerics_attention)
    with attention(network, NUMERICS_ATTENTION):
        yield
