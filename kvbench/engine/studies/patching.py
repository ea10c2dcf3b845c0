"""Localises the difference of cache on and cache off: what of it goes if parts of one path are the
other's.

In the direction of arXiv 2604.15409 the residual stream of cache on is put into the pass of cache
off; in the other, which repairs a cached answer, parts of cache off are put into the pass of cache
on."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.decoding_paths import (
    Walk,
    Whole,
    divergence,
    log_probabilities,
    read_logits,
)
from kvbench.engine.studies.states import States, read_states

ALL = -1  # stands for all layers
STEPS_AFTER = 31  # behind the patched step: with it 32, over which the text takes its mean
Extent = Literal["one", "up to", "all"]
Part = Literal["residual", "keys and values", "both"]


@dataclass(frozen=True)
class Patched:
    """Holds what is left of a divergence once a part of one path is the other's, in nats."""

    direction: Literal["off into on", "on into off"]
    rows: Part
    layers: Extent
    layer: int  # or ALL
    kl: float  # at the step, of cache on from cache off as they were
    kl_patched: float
    # Mean over the step and those behind it, each path going on from its own tokens; None where
    # that is not measured.
    kl_after: float | None = None
    kl_after_patched: float | None = None


def extents(layers: int) -> Iterator[tuple[Extent, int, Sequence[int]]]:
    """Yields which layers are patched together: each alone, all up to each, and all. The first
    alone and all are the ends of what is patched up to a layer, and are not repeated."""
    for layer in range(layers):
        yield "one", layer, (layer,)
    for layer in range(1, layers - 1):
        yield "up to", layer, range(layer + 1)
    yield "all", ALL, range(layers)


def choose_step(forced: Walk) -> tuple[int, bool] | None:
    """Finds the first step at which both choose different tokens behind the same prefix, else that
    with the largest divergence, and tells which it is; None where they are equal to the bit, as
    they are at the first step, at which both read the prompt at once."""
    pairs = zip(forced.tokens, forced.other_tokens, strict=True)
    for step, (token, other_token) in enumerate(pairs):
        if token != other_token:
            return step, True
    largest = None
    largest_kl = 0.0
    for step, difference in enumerate(forced.differences):
        if difference.kl > largest_kl:
            largest, largest_kl = step, difference.kl
    return None if largest is None else (largest, False)


def first_apart(forced: Walk) -> int | None:
    """Finds the first step at which both paths differ at all; None where they never do, or overflow
    before. The step at which both read the prompt at once never differs: it is the prefill of the
    text, whose step 0 is the next."""
    for step, difference in enumerate(forced.differences):
        if difference.kl > 0:
            return step
        if difference.kl != 0:  # NaN
            return None
    return None


def localise(
    network: PreTrainedModel, prompt: Sequence[int], written: Sequence[int]
) -> Iterator[Patched]:
    """Patches the pass of cache on that reads the last of the ``written`` tokens behind a
    prompt."""
    on, _ = _read_one_by_one(network, prompt, written[:-1])
    off = read_states(network, [*prompt, *written], DynamicCache())
    yield from patched(network, written[-1], on, off)


def _read_one_by_one(
    network: PreTrainedModel, prompt: Sequence[int], written: Sequence[int]
) -> tuple[States, DynamicCache]:
    """Reads a prompt at once and written tokens one by one; returns the states of the last pass,
    and the cache."""
    cache = DynamicCache()
    on = read_states(network, prompt, cache)
    for token in written:
        on = read_states(network, [token], cache)
    return on, cache


def patched(network: PreTrainedModel, token: int, on: States, off: States) -> Iterator[Patched]:
    """Patches the pass over a token behind the rows ``on``. ``off``: of the whole sequence, with
    that token."""

    def kl_with(rows: Sequence[int], stream: Sequence[int]) -> float:
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(zip(on.keys, on.values, strict=True)):
            if layer in rows:
                # Without the row of the token itself, which the patched pass makes.
                keys = off.keys[layer][:, :-1]
                values = off.values[layer][:, :-1]
            cache.update(keys[None], values[None], layer)
        patches = {layer: off.hidden[layer] for layer in stream}
        states = read_states(network, [token], cache, patches)
        return divergence(log_probabilities(states.logits), log_off)

    log_off = log_probabilities(off.logits)
    kl = kl_with((), ())
    for extent, layer, layers in extents(len(on.keys)):
        yield Patched("off into on", "residual", extent, layer, kl, kl_with((), layers))
        yield Patched("off into on", "keys and values", extent, layer, kl, kl_with(layers, ()))
        yield Patched("off into on", "both", extent, layer, kl, kl_with(layers, layers))


def inject(
    network: PreTrainedModel,
    prompt: Sequence[int],
    written: Sequence[int],
    steps: int,
    ends: Collection[int] = (),
) -> Iterator[Patched]:
    """Patches the pass of cache off that reads a prompt and the ``written`` tokens: its residual
    stream at the last of them is that of cache on. Then both paths go on for so many steps at most,
    cache off unpatched."""
    ids = [*prompt, *written]
    on, cache = _read_one_by_one(network, prompt, written)
    log_on = log_probabilities(on.logits)
    on_rows = _greedy_rows(network, on.logits, cache, steps, ends)
    after = StepsAfter(network, ids, on_rows, ends)

    def measured(streams: Mapping[int, torch.Tensor]) -> tuple[float, float]:
        logits = read_states(network, ids, DynamicCache(), streams).logits
        kl = divergence(log_on, log_probabilities(logits))
        return kl, after.mean_kl(kl, int(logits.argmax()))

    kl, kl_after = measured({})
    # What is put behind a layer at the last token hides all that was put there before: the last of
    # several decides.
    by_last = [measured({number: stream}) for number, stream in enumerate(on.hidden)]
    for extent, layer, layers in extents(len(on.hidden)):
        kl_patched, kl_after_patched = by_last[layers[-1]]
        yield Patched(
            "on into off", "residual", extent, layer, kl, kl_patched, kl_after, kl_after_patched
        )


def _greedy_rows(
    network: PreTrainedModel,
    logits: torch.Tensor,
    cache: DynamicCache,
    steps: int,
    ends: Collection[int],
) -> list[torch.Tensor]:
    """Lets cache on go on from the most likely tokens, and returns the logits behind each of
    them."""
    rows, row = [], logits
    for _ in range(steps):
        token = int(row.argmax())
        if token in ends:
            break
        row = read_logits(network, [token], cache)
        rows.append(row)
    return rows


@dataclass
class StepsAfter:
    """Measures how far apart both paths are behind a patched step, each going on from its own most
    likely tokens.

    Cache off computes everything anew at every step, so that nothing of a patch is left behind it
    but the token that was chosen there: patches that choose the same token share these steps."""

    network: PreTrainedModel
    ids: Sequence[int]  # up to the patched step
    on_rows: Sequence[torch.Tensor]  # logits of cache on behind it
    ends: Collection[int]
    _by_token: dict[int, list[float]] = field(default_factory=dict)

    def mean_kl(self, kl: float, token: int) -> float:
        """Returns the mean over the patched step, which has ``kl``, and those behind the token
        chosen there."""
        if token not in self._by_token:
            self._by_token[token] = list(self._walk(token))
        later = self._by_token[token]
        return (kl + sum(later)) / (1 + len(later))

    def _walk(self, token: int) -> Iterator[float]:
        off = Whole(self.network, ids=list(self.ids))
        for on_row in self.on_rows:
            if token in self.ends:
                return
            row = off.read([token])
            yield divergence(log_probabilities(on_row), log_probabilities(row))
            token = int(row.argmax())
