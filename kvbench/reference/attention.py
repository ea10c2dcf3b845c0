"""Attention over packed training sequences: a context, then rows of questions that see it and themselves only.

A dense mask over the whole sequence would spend three quarters of the work on pairs that do not see one another.
"""

from dataclasses import dataclass
from typing import Any

import torch

PACKED_ATTENTION = "kvbench_packed"


@dataclass(frozen=True)
class PackedLayout:
    """How a sequence of ``context_width + rows * row_length`` places is divided.

    ``context_width``: tokens of the context part, padding included. Behind it come the rows, each of which holds
    several questions. ``visible``: bool (batch, rows, row_length, context_width + row_length), what a place of a row
    sees of the context and of its own row.
    """

    context_width: int
    visible: torch.Tensor


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    layout: PackedLayout,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Shapes: query (batch, heads, length, size), key and value (batch, key heads, length, size).

    The query heads of a group share their key head and are folded into the query length, which repeats no keys.
    Written out rather than called as a fused kernel: at these lengths that takes twice the time on a CPU.
    """
    batch, heads, size = query.shape[0], query.shape[1], query.shape[3]
    key_heads: int = key.shape[1]
    groups: int = heads // key_heads
    width = layout.context_width
    rows, length = layout.visible.shape[1:3]
    query, key = query.to(value.dtype), key.to(value.dtype)  # the rotary embedding leaves float32
    context_keys, context_values = key[:, :, :width], value[:, :, :width]
    row_keys = key[:, :, width:].unflatten(2, (rows, length))
    row_values = value[:, :, width:].unflatten(2, (rows, length))

    context_query = query[:, :, :width].reshape(batch, key_heads, groups * width, size)
    scores = (context_query @ context_keys.transpose(-1, -2)).unflatten(2, (groups, width))
    hidden = torch.ones(width, width, dtype=torch.bool, device=query.device).triu(1)
    weights = _softmax(scores, hidden, scaling)
    from_context = (weights.flatten(2, 3) @ context_values).view(batch, heads, width, size)

    row_query = query[:, :, width:].reshape(batch, key_heads, groups, rows, length, size)
    of_context = (row_query.flatten(2, 4) @ context_keys.transpose(-1, -2)).view(*row_query.shape[:5], width)
    by_row = row_query.transpose(2, 3).flatten(3, 4)  # (batch, key heads, rows, groups * length, size)
    of_row = (by_row @ row_keys.transpose(-1, -2)).unflatten(3, (groups, length)).transpose(2, 3)
    weights = _softmax(torch.cat([of_context, of_row], dim=-1), ~layout.visible[:, None, None], scaling)
    read = (weights[..., :width].flatten(2, 4) @ context_values).view(row_query.shape)
    read_row = (weights[..., width:].transpose(2, 3).flatten(3, 4) @ row_values).unflatten(3, (groups, length))
    from_rows = (read + read_row.transpose(2, 3)).reshape(batch, heads, rows * length, size)
    return torch.cat([from_context, from_rows], dim=2).transpose(1, 2).contiguous(), None


def _softmax(scores: torch.Tensor, hidden: torch.Tensor, scaling: float) -> torch.Tensor:
    """Over the last dimension, in float32, back in the dtype of the scores; a place that sees nothing reads a mean."""
    return torch.softmax(torch.where(hidden, -1e4, scores.float() * scaling), dim=-1).to(scores.dtype)
