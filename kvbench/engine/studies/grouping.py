"""Measures the drift of cache on from cache off in models of equal function in which other numbers
of query heads share a head of keys and values.

A head of keys and values that several query heads share can be repeated for each of them, and the
function is the same. The reverse cannot be made: heads that differ have no common one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from kvbench.engine.studies.drift import measure_drift
from kvbench.models.load import find_decoder
from kvbench.models.precision import multiplies, multiply_in_float32

WRITTEN = 3  # the last tokens of a prompt, which cache on reads one by one
PROJECTIONS = ("k_proj", "v_proj")


def group_sizes(network: PreTrainedModel) -> list[int]:
    """Lists by how many query heads a head can be shared: all divisors of the model's own number.
    Where keys have no projection of their own to repeat, or attention differs by layer, there is
    none."""
    shared = set()
    for layer in find_decoder(network).layers:
        attention = layer.self_attn
        shared.add(int(attention.num_key_value_groups))
        parts = dict(attention.named_children())
        if not set(PROJECTIONS) <= parts.keys():
            return []
    if len(shared) > 1:
        return []
    (largest,) = shared
    return [size for size in range(1, largest + 1) if largest % size == 0]


@contextmanager
def shared_by(network: PreTrainedModel, size: int) -> Iterator[None]:
    """Lets ``size`` query heads share a head inside a ``with`` block: the weights of keys and
    values are repeated."""
    before: list[tuple[Any, dict[str, Any]]] = []
    try:
        for layer in find_decoder(network).layers:
            attention = layer.self_attn
            groups = attention.num_key_value_groups
            projections = {name: getattr(attention, name) for name in PROJECTIONS}
            # Noted before anything is set, so that a failure in between is undone as well.
            before.append((attention, {**projections, "num_key_value_groups": groups}))
            for name, projection in projections.items():
                repeated = _repeated(projection, attention.head_dim, groups // size)
                setattr(attention, name, repeated)
            attention.num_key_value_groups = size
        yield
    finally:
        for attention, parts in before:
            for name, part in parts.items():
                setattr(attention, name, part)


@torch.no_grad()
def _repeated(projection: torch.nn.Linear, head_size: int, times: int) -> torch.nn.Linear:
    def repeat(weights: torch.Tensor) -> torch.nn.Parameter:
        heads = weights.unflatten(0, (-1, head_size))
        # Each beside itself and not all of them in turn: to transformers, neighbouring query heads
        # share a key head.
        repeated = heads.repeat_interleave(times, 0).flatten(0, 1)
        return torch.nn.Parameter(repeated, requires_grad=False)

    weight, bias = projection.weight, projection.bias
    rows, columns = weight.shape
    # On the meta device no weights are made, which would be replaced at once.
    wider = torch.nn.Linear(columns, times * rows, bias is not None, device="meta")
    wider.weight = repeat(weight)
    if bias is not None:
        wider.bias = repeat(bias)
    dtype = str(weight.dtype).removeprefix("torch.")
    # As the layers around it, which in_dtype has compute in float32 on such a processor.
    if weight.device.type == "cpu" and not multiplies(dtype):
        multiply_in_float32(wider)
    return wider


def by_group_size(
    network: PreTrainedModel, ids: Sequence[int]
) -> Iterator[tuple[int, list[float]]]:
    """Yields each number of query heads to a head, with the relative drift of the residual stream
    behind each layer: the mean over the last tokens of a prompt, which cache on reads one by
    one."""
    prompt, written = ids[:-WRITTEN], ids[-WRITTEN:]
    for size in group_sizes(network):
        with shared_by(network, size):
            layers = measure_drift(network, prompt, written)
        # At the first step both read the prompt at once, and nothing drifts.
        drifts = [layer.hidden[1:] for layer in layers]
        yield size, [float(np.mean(drift)) for drift in drifts]
