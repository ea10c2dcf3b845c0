"""Localises the difference of cache on and cache off: what of it goes if parts of cache on are cache off's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.states import States, read_states
from kvbench.engine.studies.walks import Walk, divergence, log_probabilities

ALL = -1  # stands for all layers


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
