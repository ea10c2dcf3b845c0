"""Localises a difference of cache on and cache off: what of it goes if parts of cache on are cache off's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.numerics.measures import divergence, log_probabilities
from kvbench.engine.numerics.regimes import Walk
from kvbench.engine.numerics.states import Layers, States, cache_of, read_states

ALL = -1  # stands for all layers
Rows = Literal["residual", "residual so far", "keys and values", "both"]


@dataclass(frozen=True)
class Place:
    """Says where two walks are compared: the step, and whether they choose different tokens there."""

    step: int
    at_flip: bool


@dataclass(frozen=True)
class Patched:
    """Holds what is left of a divergence once a part of cache on is cache off's."""

    rows: Rows
    layer: int  # or ALL
    kl: float  # of cache off from cache on as it was, in nats
    kl_patched: float


def place_of(forced: Walk) -> Place | None:
    """Finds the first step at which both choose different tokens behind the same prefix, else that with the largest
    divergence; None where they are equal to the bit. At the first step both read the prompt at once."""
    pairs = zip(forced.tokens, forced.other_tokens, strict=True)
    flip = next((step for step, (one, other) in enumerate(pairs) if one != other), None)
    if flip is not None:
        return Place(flip, True)
    kl = [one.kl for one in forced.differences]
    most = max((step for step, value in enumerate(kl) if value > 0), key=kl.__getitem__, default=None)
    return None if most is None else Place(most, False)


def localise(network: PreTrainedModel, prompt: Sequence[int], written: Sequence[int]) -> list[Patched]:
    """Patches the pass of cache on that reads the last of the ``written`` tokens behind a prompt."""
    cache = DynamicCache()
    on = read_states(network, prompt, cache)
    for token in written[:-1]:
        on = read_states(network, [token], cache)
    off = read_states(network, [*prompt, *written], DynamicCache())
    return list(patched(network, written[-1], on, off))


def patched(network: PreTrainedModel, token: int, on: States, off: States) -> Iterator[Patched]:
    """Patches the pass over a token behind the rows ``on``. ``off``: of the whole sequence, with that token."""
    keys, values = ([one[:, :-1] for one in rows] for rows in (off.keys, off.values))
    log_off = log_probabilities(off.logits)

    def kl_with(layers: Sequence[int], stream: Mapping[int, torch.Tensor]) -> float:
        cache = cache_of(_replaced(on.keys, keys, layers), _replaced(on.values, values, layers))
        return divergence(log_probabilities(read_states(network, [token], cache, stream).logits), log_off)

    kl = kl_with((), {})
    everywhere = range(len(keys))
    for layer in everywhere:
        own, so_far = ({one: off.hidden[one] for one in range(first, layer + 1)} for first in (layer, 0))
        yield Patched("residual", layer, kl, kl_with((), own))
        yield Patched("residual so far", layer, kl, kl_with((), so_far))
        yield Patched("keys and values", layer, kl, kl_with([layer], {}))
        yield Patched("both", layer, kl, kl_with([layer], own))
    whole = dict(enumerate(off.hidden))
    yield Patched("residual", ALL, kl, kl_with((), whole))
    yield Patched("keys and values", ALL, kl, kl_with(everywhere, {}))
    yield Patched("both", ALL, kl, kl_with(everywhere, whole))


def _replaced(rows: Layers, others: Layers, layers: Sequence[int]) -> list[torch.Tensor]:
    return [others[number] if number in layers else own for number, own in enumerate(rows)]
