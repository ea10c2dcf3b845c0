"""Measures how far cache on and cache off are apart inside a model, layer by layer: rows of the cache, the residual
stream, attention, and how much of it each layer adds by itself."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.numerics.measures import divergences
from kvbench.engine.numerics.sampling import Choose
from kvbench.engine.numerics.states import States, read_states

SHORTEST, MOST_ROWS = 16, 256  # of a dot product, and the rows of the output weights that are tried


@dataclass
class LayerDrift:
    """Holds how far a layer of cache on is from the same of cache off. Relative: the distance over the length of cache
    off's. Lists without another word have a number for each step."""

    keys: list[float] = field(default_factory=list)  # relative, by position, once the last step is read
    values: list[float] = field(default_factory=list)
    keys_cosine: list[float] = field(default_factory=list)  # by position
    values_cosine: list[float] = field(default_factory=list)
    keys_written: list[float] = field(
        default_factory=list
    )  # relative, of the row of the last token, when it is written
    values_written: list[float] = field(default_factory=list)
    hidden: list[float] = field(default_factory=list)  # relative, of the residual stream behind the layer
    hidden_l2: list[float] = field(default_factory=list)  # the distance itself
    hidden_cosine: list[float] = field(default_factory=list)
    # The distance that this layer adds by itself: it is given the stream and the rows of cache off, and puts out
    # something else, as it reads one token instead of all.
    added_l2: list[float] = field(default_factory=list)
    attention_kl: list[float] = field(default_factory=list)  # by head: of the last token, mean over steps, in nats
    lengths: list[int] = field(default_factory=list)  # of dot products of the residual stream with output weights
    product_error: list[float] = field(default_factory=list)  # of each length, over the lengths of both vectors


def drift_of(
    network: PreTrainedModel,
    ids: Sequence[int],
    choose: Choose,
    steps: int,
    ends: Collection[int] = (),
    given: Sequence[int] = (),
) -> list[LayerDrift]:
    """Walks cache on and cache off over the same tokens, those ``given`` or those that cache on chooses, and compares
    them in every layer. Both read the same ids from position 0 on."""
    cache, so_far = DynamicCache(), list(ids)
    on = read_states(network, so_far, cache)
    layers = [LayerDrift() for _ in on.hidden]
    attention: list[list[torch.Tensor]] = [[] for _ in layers]  # by layer and step: divergences of all heads
    last = min(steps, len(given) or steps) - 1
    for step in range(last + 1):
        off = read_states(network, so_far, DynamicCache())
        _compare(layers, network, so_far, on, off, alone=step > 0)
        for of_layer, *of_paths in zip(attention, on.log_attention, off.log_attention, strict=True):
            of_layer.append(divergences(*of_paths))
        token = given[step] if given else choose(on.logits, step)
        if step == last or (not given and token in ends):
            break
        so_far.append(token)
        on = read_states(network, [token], cache)
    for number, layer in enumerate(layers):
        layer.keys, layer.keys_cosine = _rows_apart(on.keys[number], off.keys[number])
        layer.values, layer.values_cosine = _rows_apart(on.values[number], off.values[number])
        layer.attention_kl = torch.stack(attention[number]).mean(0).tolist()
        layer.lengths, layer.product_error = product_errors(network, off.hidden[number])
    return layers


def _compare(
    layers: Sequence[LayerDrift], network: PreTrainedModel, ids: Sequence[int], on: States, off: States, alone: bool
) -> None:
    """Adds what both came to at a step. ``alone``: cache on read the last token by itself."""
    before = off.cache(len(ids) - 1)
    fresh = read_states(network, ids[-1:], before, dict(enumerate(off.hidden))) if alone else off
    for number, layer in enumerate(layers):
        distance, length, cosine = _apart(on.hidden[number], off.hidden[number])
        layer.hidden.append(distance / length)
        layer.hidden_l2.append(distance)
        layer.hidden_cosine.append(cosine)
        layer.added_l2.append(_apart(fresh.hidden[number], off.hidden[number])[0])
        layer.keys_written += _rows_apart(on.keys[number][:, -1:], off.keys[number][:, -1:])[0]
        layer.values_written += _rows_apart(on.values[number][:, -1:], off.values[number][:, -1:])[0]


def _apart(one: torch.Tensor, other: torch.Tensor) -> tuple[float, float, float]:
    """Returns the distance of two vectors, the length of the second, and their cosine."""
    one, other = one.double(), other.double()
    cosine = torch.nn.functional.cosine_similarity(one, other, dim=0)
    return float((one - other).norm()), float(other.norm()), float(cosine)


def _rows_apart(one: torch.Tensor, other: torch.Tensor) -> tuple[list[float], list[float]]:
    """Returns the relative distance and the cosine of rows of all heads together, by position."""
    first, second = (rows.transpose(0, 1).flatten(1).double() for rows in (one, other))
    distance = (first - second).norm(dim=1) / second.norm(dim=1)
    cosine = torch.nn.functional.cosine_similarity(first, second)
    return distance.tolist(), cosine.tolist()


def product_errors(network: PreTrainedModel, state: torch.Tensor) -> tuple[list[int], list[float]]:
    """Returns the error of dot products of the first numbers of a state with as many of the output weights, by how many
    they are: its root mean square against float64, over the lengths of both vectors."""
    weights = network.get_output_embeddings().weight.detach()[:MOST_ROWS]
    lengths = [len(state)]
    while lengths[-1] >= 2 * SHORTEST:
        lengths.append(lengths[-1] // 2)
    errors = []
    for length in sorted(lengths):
        rows, vector = weights[:, :length], state[:length]
        exact = rows.double() @ vector.double()
        scale = rows.double().norm(dim=1) * vector.double().norm()
        errors.append(float((((rows @ vector).double() - exact) / scale).square().mean().sqrt()))
    return sorted(lengths), errors
