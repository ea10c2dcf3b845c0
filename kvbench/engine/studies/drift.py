"""Measures layer by layer how far cache on and cache off are apart behind the same tokens: rows of
the cache, the residual stream, and the attention of each head."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.decoding_paths import divergence
from kvbench.engine.studies.states import States, attention_seen, read_states

# The first step at which cache on reads a token by itself: at step 0 both read the prompt.
STEP_ALONE = 1


@dataclass
class LayerDrift:
    """Holds how far a layer of cache on is from the same of cache off; relative: over the length of
    cache off's."""

    # Of the residual stream behind the layer, relative, by step.
    hidden: list[float] = field(default_factory=list)
    hidden_l2: list[float] = field(default_factory=list)  # the distance itself, by step
    hidden_cosine: list[float] = field(default_factory=list)  # of both streams, by step
    # By head, KL of the attention of cache on from that of cache off, of the token at STEP_ALONE,
    # in nats; empty where no answer has that step.
    attention_kl: list[float] = field(default_factory=list)
    # Relative, by position, once the last step is read.
    keys: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def measure_drift(
    network: PreTrainedModel, prompt: Sequence[int], written: Sequence[int]
) -> list[LayerDrift]:
    """Reads a prompt and then each written token with cache on and cache off, and compares all
    layers."""
    cache = DynamicCache()
    so_far = list(prompt)
    on = read_states(network, so_far, cache)
    off = read_states(network, so_far, DynamicCache())
    layers = [LayerDrift() for _ in on.hidden]
    _compare(layers, on, off)
    for step, token in enumerate(written, start=1):
        so_far.append(token)
        with attention_noted(network, step == STEP_ALONE) as noted:
            on = read_states(network, [token], cache)
            off = read_states(network, so_far, DynamicCache())
        _compare(layers, on, off)
        if noted:
            _compare_attention(layers, noted)
    for layer, keys, other_keys in zip(layers, on.keys, off.keys, strict=True):
        layer.keys = _rows_apart(keys, other_keys)
    for layer, values, other_values in zip(layers, on.values, off.values, strict=True):
        layer.values = _rows_apart(values, other_values)
    return layers


def _compare_attention(layers: Sequence[LayerDrift], noted: Sequence[torch.Tensor]) -> None:
    """Compares the heads of each layer. ``noted``: the layers of cache on, then those of cache
    off."""
    of_cache_off = noted[len(layers) :]
    # The first list goes on with the layers of cache off, behind those that are paired here.
    for layer, on, off in zip(layers, noted, of_cache_off, strict=False):
        layer.attention_kl = [divergence(*heads) for heads in zip(on, off, strict=True)]


def _compare(layers: Sequence[LayerDrift], on: States, off: States) -> None:
    """Adds how far the streams of both are apart at a step."""
    for layer, on_stream, off_stream in zip(layers, on.hidden, off.hidden, strict=True):
        # In float64, as what is measured is as small as the rounding of the streams' own dtype.
        first, second = on_stream.double(), off_stream.double()
        distance = float((first - second).norm())
        layer.hidden.append(distance / float(second.norm()))
        layer.hidden_l2.append(distance)
        layer.hidden_cosine.append(cosine_between(first, second))


def cosine_between(first: torch.Tensor, second: torch.Tensor) -> float:
    """Returns the cosine of two vectors of shape (size,), from the distance of their directions: a product of nearly
    equal directions would be rounded to above 1, and equal ones have exactly 1."""
    apart = first / first.norm() - second / second.norm()
    return 1.0 - float(apart.square().sum()) / 2


def _rows_apart(first: torch.Tensor, second: torch.Tensor) -> list[float]:
    """Returns the relative distance of rows of all heads together, by position.

    Both are (num_kv_heads, tokens, head_dim), and the distance is over the length of the second.
    """
    # (tokens, num_kv_heads * head_dim).
    first_rows = first.transpose(0, 1).flatten(1).double()
    second_rows = second.transpose(0, 1).flatten(1).double()
    distance = (first_rows - second_rows).norm(dim=1)
    relative: list[float] = (distance / second_rows.norm(dim=1)).tolist()
    return relative


@contextmanager
def attention_noted(
    network: PreTrainedModel, is_noted: bool = True
) -> Iterator[list[torch.Tensor]]:
    """Notes inside a ``with`` block, layer by layer, the logarithm of the attention of the last
    token, float64 of shape (heads, tokens that it sees). The function that attends gives no
    weights, which are computed again from the queries and keys that it is given."""
    noted: list[torch.Tensor] = []

    def note(
        query: torch.Tensor,
        key: torch.Tensor,
        _value: torch.Tensor,
        mask: torch.Tensor | None,
        scale: float,
    ) -> None:
        noted.append(log_weights(query, key, mask, scale))

    with attention_seen(network, note) if is_noted else nullcontext():
        yield noted


def log_weights(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """Returns the logarithm of the attention of the last token of one sequence to the tokens that
    it sees: float64 (heads, tokens that it sees).

    ``query``: (1, heads, tokens, head_dim). ``key``: (1, num_kv_heads, keys, head_dim). ``mask``:
    (1, 1, tokens, keys), true or 0 where a token is seen; without one the last token sees all."""
    groups = query.shape[1] // key.shape[1]
    # (heads, keys, head_dim): each query head with the keys that it reads.
    keys = key[0].double().repeat_interleave(groups, 0)
    last_query = query[0, :, -1, :, None].double()
    scores = (keys @ last_query)[..., 0] * scale
    if mask is not None:
        last = mask[0, 0, -1]
        seen = last if last.dtype == torch.bool else last == 0
        scores = scores[:, seen]
    return scores.log_softmax(-1)
