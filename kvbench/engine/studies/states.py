"""Reads what a pass of a network computes layer by layer, and puts other states in the place of
some of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvbench.engine.treat.branch import keys_and_values
from kvbench.models.load import find_decoder

Layers = Sequence[torch.Tensor]
# Takes what a layer attends by: queries of shape (1, heads, tokens, head_dim), keys and values of
# shape (1, num_kv_heads, keys, head_dim), the mask, (1, 1, tokens, keys), if there is one, and the
# factor of their products.
SeeAttention = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, float], None
]


@dataclass(frozen=True)
class States:
    """Holds what a pass computed."""

    logits: torch.Tensor  # behind the last token, (vocabulary,)
    # The residual stream of the last token behind each layer before it was patched, (hidden_size,).
    hidden: Layers
    keys: Layers  # of all tokens so far by layer, (num_kv_heads, tokens, head_dim)
    values: Layers


@torch.no_grad()
def read_states(
    network: PreTrainedModel,
    ids: Sequence[int],
    cache: DynamicCache,
    patches: Mapping[int, torch.Tensor] | None = None,
) -> States:
    """Reads tokens behind those of a cache, which it adds to. ``patches``: by layer, what stands in
    place of the residual stream behind it, at the last token: shape (hidden_size,)."""
    tokens = torch.tensor([ids], device=network.device)
    with _hooked(network, patches or {}) as hidden:
        output = network(input_ids=tokens, past_key_values=cache, logits_to_keep=1)
    return States(output.logits[0, -1], hidden, *keys_and_values(cache))


@contextmanager
def _hooked(
    network: PreTrainedModel, patches: Mapping[int, torch.Tensor]
) -> Iterator[list[torch.Tensor]]:
    """Notes what layers put out for the last token, and puts the patches in its place, inside a
    ``with`` block."""
    hidden: list[torch.Tensor] = []

    # In transformers 5 a decoder layer puts out the stream itself, and no tuple around it.
    def see(number: int, _layer: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
        # A copy, since a view would keep the stream of all tokens in memory.
        hidden.append(output[0, -1].clone())
        if number not in patches:
            return None
        patched = output.clone()
        patched[0, -1] = patches[number]
        return patched

    handles = []
    for number, layer in enumerate(find_decoder(network).layers):
        see_layer = partial(see, number)
        handles.append(layer.register_forward_hook(see_layer))
    try:
        yield hidden
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def attention_seen(network: PreTrainedModel, see: SeeAttention) -> Iterator[None]:
    """Shows what each layer attends by, one after the other, inside a ``with`` block.

    The network attends by the very function that it always does, with the same mask, so that no bit
    of it changes."""
    name = find_decoder(network).config._attn_implementation
    attend = ALL_ATTENTION_FUNCTIONS[name]

    def shown(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: Any,
        **more: Any,
    ) -> Any:
        scaling = more.get("scaling")
        see(query, key, value, mask, query.shape[-1] ** -0.5 if scaling is None else scaling)
        return attend(module, query, key, value, mask, **more)

    # Under its own name: transformers chooses the kind of mask by the name.
    ALL_ATTENTION_FUNCTIONS[name] = shown
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS[name] = attend
