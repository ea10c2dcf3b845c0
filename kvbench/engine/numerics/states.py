"""Reads tokens and keeps what the last of them comes to in each layer, where it may be patched."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.numerics.attending import attending
from kvbench.models.load import decoder_of

Layers = Sequence[torch.Tensor]


@dataclass(frozen=True)
class States:
    """Holds what a pass computed. ``hidden`` is what each layer put out for the last token, before it was patched."""

    logits: torch.Tensor  # behind the last token, (vocabulary,)
    hidden: Layers  # the residual stream of the last token behind each layer, (hidden_size,)
    log_attention: Layers  # of the last token by layer, (heads, tokens), in float64
    keys: Layers  # of all tokens so far by layer, (num_kv_heads, tokens, head_dim)
    values: Layers

    def cache(self, tokens: int) -> DynamicCache:
        """Makes a cache of the rows of the first tokens."""
        return cache_of([one[:, :tokens] for one in self.keys], [one[:, :tokens] for one in self.values])


def cache_of(keys: Layers, values: Layers) -> DynamicCache:
    """Makes a cache of rows by layer, shape (num_kv_heads, tokens, head_dim)."""
    cache = DynamicCache()
    for layer, rows in enumerate(zip(keys, values, strict=True)):
        cache.update(rows[0][None], rows[1][None], layer)
    return cache


@torch.no_grad()
def read_states(
    network: PreTrainedModel, ids: Sequence[int], cache: DynamicCache, patches: Mapping[int, torch.Tensor] | None = None
) -> States:
    """Reads tokens behind those of a cache, which it adds to. ``patches``: by layer, what stands in place of the
    residual stream behind it, at the last token."""
    log_weights: list[torch.Tensor] = []
    tokens = torch.tensor([ids], device=network.device)
    with attending(network), _hooked(network, patches or {}) as hidden:
        output = network(input_ids=tokens, past_key_values=cache, logits_to_keep=1, log_weights=log_weights)
    keys = [layer.keys[0] for layer in cache.layers if layer.keys is not None]
    values = [layer.values[0] for layer in cache.layers if layer.values is not None]
    return States(output.logits[0, -1], hidden, log_weights, keys, values)


@contextmanager
def _hooked(network: PreTrainedModel, patches: Mapping[int, torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Notes what layers put out for the last token, and puts the patches in its place, inside a ``with`` block."""
    hidden: list[torch.Tensor] = []

    def see(layer: int, output: torch.Tensor) -> torch.Tensor | None:
        hidden.append(output[0, -1].clone())
        if layer not in patches:
            return None
        patched = output.clone()
        patched[0, -1] = patches[layer]
        return patched

    def hook(layer: int) -> Any:
        return lambda _module, _given, output: see(layer, output)

    layers = decoder_of(network).layers
    handles = [layer.register_forward_hook(hook(number)) for number, layer in enumerate(layers)]
    try:
        yield hidden
    finally:
        for handle in handles:
            handle.remove()
