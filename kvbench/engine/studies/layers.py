"""Measures layer by layer how far cache on and cache off are apart behind the same tokens, and localises the
difference: what of it goes if parts of cache on are cache off's."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.walks import Walk, divergence, log_probabilities
from kvbench.models.load import decoder_of

ALL = -1  # stands for all layers
Layers = Sequence[torch.Tensor]


@dataclass(frozen=True)
class States:
    """Holds what a pass computed."""

    logits: torch.Tensor  # behind the last token, (vocabulary,)
    hidden: Layers  # the residual stream of the last token behind each layer before it was patched, (hidden_size,)
    keys: Layers  # of all tokens so far by layer, (num_kv_heads, tokens, head_dim)
    values: Layers


@torch.no_grad()
def read_states(
    network: PreTrainedModel, ids: Sequence[int], cache: DynamicCache, patches: Mapping[int, torch.Tensor] | None = None
) -> States:
    """Reads tokens behind those of a cache, which it adds to. ``patches``: by layer, what stands in place of the
    residual stream behind it, at the last token."""
    tokens = torch.tensor([ids], device=network.device)
    with _hooked(network, patches or {}) as hidden:
        output = network(input_ids=tokens, past_key_values=cache, logits_to_keep=1)
    keys = [layer.keys[0] for layer in cache.layers if layer.keys is not None]
    values = [layer.values[0] for layer in cache.layers if layer.values is not None]
    return States(output.logits[0, -1], hidden, keys, values)


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


@dataclass(frozen=True)
class LayerDrift:
    """Holds how far a layer of cache on is from the same of cache off: the distance over the length of cache off's."""

    hidden: list[float]  # of the residual stream behind the layer, by step
    keys: list[float]  # by position, once the last step is read
    values: list[float]


def drift_of(network: PreTrainedModel, prompt: Sequence[int], written: Sequence[int]) -> list[LayerDrift]:
    """Reads a prompt and then each written token with cache on and cache off, and compares all layers."""
    cache, so_far = DynamicCache(), list(prompt)
    on, off = (read_states(network, so_far, one) for one in (cache, DynamicCache()))
    hidden = [[_apart(*pair)] for pair in zip(on.hidden, off.hidden, strict=True)]
    for token in written:
        so_far.append(token)
        on, off = read_states(network, [token], cache), read_states(network, so_far, DynamicCache())
        for steps, *pair in zip(hidden, on.hidden, off.hidden, strict=True):
            steps.append(_apart(*pair))
    keys, values = (map(_rows_apart, *pair) for pair in ((on.keys, off.keys), (on.values, off.values)))
    return [LayerDrift(*layer) for layer in zip(hidden, keys, values, strict=True)]


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm()) / float(other.double().norm())


def _rows_apart(one: torch.Tensor, other: torch.Tensor) -> list[float]:
    """Returns the relative distance of rows of all heads together, by position."""
    first, second = (rows.transpose(0, 1).flatten(1).double() for rows in (one, other))
    distance: list[float] = ((first - second).norm(dim=1) / second.norm(dim=1)).tolist()
    return distance


@dataclass(frozen=True)
class Patched:
    """Holds what is left of a divergence once a part of cache on is cache off's."""

    rows: Literal["residual", "keys and values", "both"]
    layer: int  # or ALL
    kl: float  # of cache off from cache on as it was, in nats
    kl_patched: float


def place_of(forced: Walk) -> tuple[int, bool] | None:
    """Finds the first step at which both choose different tokens behind the same prefix, else that with the largest
    divergence, and tells which it is; None where they are equal to the bit, as they are at the first step, at which
    both read the prompt at once."""
    pairs = zip(forced.tokens, forced.other_tokens, strict=True)
    flip = next((step for step, (one, other) in enumerate(pairs) if one != other), None)
    if flip is not None:
        return flip, True
    kl = [one.kl for one in forced.differences]
    largest = max((step for step, value in enumerate(kl) if value > 0), key=kl.__getitem__, default=None)
    return None if largest is None else (largest, False)


def localise(network: PreTrainedModel, prompt: Sequence[int], written: Sequence[int]) -> Iterator[Patched]:
    """Patches the pass of cache on that reads the last of the ``written`` tokens behind a prompt."""
    cache = DynamicCache()
    on = read_states(network, prompt, cache)
    for token in written[:-1]:
        on = read_states(network, [token], cache)
    yield from patched(network, written[-1], on, read_states(network, [*prompt, *written], DynamicCache()))


def patched(network: PreTrainedModel, token: int, on: States, off: States) -> Iterator[Patched]:
    """Patches the pass over a token behind the rows ``on``. ``off``: of the whole sequence, with that token."""

    def kl_with(rows: Sequence[int], stream: Sequence[int]) -> float:
        cache = DynamicCache()
        for layer, own in enumerate(zip(on.keys, on.values, strict=True)):
            others = off.keys[layer][:, :-1], off.values[layer][:, :-1]
            keys, values = others if layer in rows else own
            cache.update(keys[None], values[None], layer)
        states = read_states(network, [token], cache, {layer: off.hidden[layer] for layer in stream})
        return divergence(log_probabilities(states.logits), log_off)

    log_off = log_probabilities(off.logits)
    kl, everywhere = kl_with((), ()), range(len(on.keys))
    for layer, layers in [*((one, [one]) for one in everywhere), (ALL, everywhere)]:
        yield Patched("residual", layer, kl, kl_with((), layers))
        yield Patched("keys and values", layer, kl, kl_with(layers, ()))
        yield Patched("both", layer, kl, kl_with(layers, layers))
