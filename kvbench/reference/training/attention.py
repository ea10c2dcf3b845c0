"""Attention over packed training sequences: a context, then rows of questions that see it and themselves only.

A dense mask over the whole sequence would spend three quarters of the work on pairs that do not see one another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Disturbance = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

PACKED_ATTENTION = "kvbench_packed"
LARGEST_SCORE = 60.0


@dataclass(frozen=True)
class PackedLayout:
    """Says how a sequence of ``context_width + rows * row_length`` places is divided.

    ``context_width``: tokens of the context part, padding included. Behind it come the rows, each of which holds
    several questions. What sees what is 1 or 0, since truth values would take a compiled product ten times as long:
    ``earlier`` (context_width, context_width) within the context, ``of_context`` (batch, rows, row_length,
    context_width) from a row, and ``of_row`` (batch, rows, row_length, row_length) within it.

    The last two say what of the context the questions can read in one layer; the context reads itself undisturbed.
    ``readable``: (batch, key heads or 1, context_width), 1 or 0. ``disturb`` makes other keys and values of the
    context's: both of shape (batch, key heads, context_width, size).
    """

    context_width: int
    earlier: torch.Tensor
    of_context: torch.Tensor
    of_row: torch.Tensor
    readable: torch.Tensor
    disturb: Disturbance | None = None


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
    """Computes attention. Shapes: query (batch, heads, length, size), key and value (batch, key heads, length, size).

    The query heads of a group share their key head and are folded into the query length, which repeats no keys.
    Written out rather than called as a fused kernel: at these lengths that takes twice the time on a CPU.
    """
    batch, heads, size = query.shape[0], query.shape[1], query.shape[3]
    key_heads: int = key.shape[1]
    groups: int = heads // key_heads
    width = layout.context_width
    rows, length = layout.of_row.shape[1:3]
    query, key = (query * scaling).to(value.dtype), key.to(value.dtype)  # the rotary embedding leaves float32
    # Split and not sliced: the gradient of a slice is a whole tensor of zeros with it inside.
    parts = [width, rows * length]
    (context_query, row_query), (context_keys, row_keys), (context_values, row_values) = (
        tensor.split(parts, dim=2) for tensor in (query, key, value)
    )
    row_keys, row_values = row_keys.unflatten(2, (rows, length)), row_values.unflatten(2, (rows, length))

    context_query = context_query.reshape(batch, key_heads, groups * width, size)
    scores = (context_query @ context_keys.transpose(-1, -2)).unflatten(2, (groups, width))
    weights, total = _weigh(scores, layout.earlier)
    from_context = ((weights.flatten(2, 3) @ context_values).unflatten(2, (groups, width)) / total).to(value.dtype)
    from_context = from_context.view(batch, heads, width, size)

    if layout.disturb is not None:
        context_keys, context_values = layout.disturb(context_keys, context_values)
    row_query = row_query.reshape(batch, key_heads, groups, rows, length, size)
    scores = (row_query.flatten(2, 4) @ context_keys.transpose(-1, -2)).view(*row_query.shape[:5], width)
    weights, total = _weigh(scores, layout.of_context[:, None, None], layout.readable[:, :, None, None, None])
    read = (weights.flatten(2, 4) @ context_values).view(row_query.shape)
    by_row = row_query.transpose(2, 3).flatten(3, 4)  # (batch, key heads, rows, groups * length, size)
    scores = (by_row @ row_keys.transpose(-1, -2)).unflatten(3, (groups, length))
    weights, row_total = _weigh(scores, layout.of_row[:, None, :, None])
    read_row = (weights.flatten(3, 4) @ row_values).unflatten(3, (groups, length))
    from_rows = (read + read_row.transpose(2, 3)) / (total + row_total.transpose(2, 3))
    from_rows = from_rows.to(value.dtype).reshape(batch, heads, rows * length, size)
    return torch.cat([from_context, from_rows], dim=2).transpose(1, 2).contiguous(), None


def _weigh(scores: torch.Tensor, *visible: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes the exponentials of a softmax and their sum over the last dimension, which several parts may share.

    No maximum is taken off first, which would be one more pass over the scores: with both ends cut, neither an
    exponential nor a sum leaves the range of bfloat16. A place that sees nothing reads nothing. What is cut has the
    gradient of what is not: a gradient that asks for each place whether it was cut takes several times as long.
    """
    precise = scores.float()
    weights = torch.exp(precise + (precise.clamp(-LARGEST_SCORE, LARGEST_SCORE) - precise).detach())
    for mask in visible:
        weights = weights * mask
    return weights.to(scores.dtype), weights.sum(-1, keepdim=True).clamp_min(1e-30)
