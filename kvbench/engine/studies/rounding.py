"""Measures what rounding does to a network's own numbers: in one product by its length, and from
layer to layer.

Both are experiments of arXiv 2604.15409, which takes random numbers: here queries, keys, values and
weights are those of the network over a real prompt. What is compared with is computed from the same
rounded numbers in float64."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.decoding_paths import read_logits
from kvbench.engine.studies.states import attention_seen
from kvbench.models.load import find_decoder
from kvbench.models.precision import layer_in_float64

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)  # tokens; the text ends at 128
CACHES = ("past_key_values", "past_key_value")  # arguments of a layer


@dataclass(frozen=True)
class Attended:
    """Holds what a layer multiplies, shape (heads, tokens, head_dim), each head with its own keys
    and values."""

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    scale: float


@dataclass
class Rounding:
    """Holds the relative errors of one layer: the distance from what float64 gives over the length
    of that."""

    lengths: list[int] = field(default_factory=list)  # tokens that are attended to
    # By length: of query times keys, mean over heads.
    scores: list[float] = field(default_factory=list)
    outputs: list[float] = field(default_factory=list)  # by length: of attention times values
    alone: float = 0.0  # of the stream behind the layer, where its input is exact; mean over tokens
    propagated: float = 0.0  # where the layers before it are rounded too


@dataclass(frozen=True)
class _LayerPass:
    """Holds what a layer reads, the arguments that it is called with, and what it puts out."""

    stream: torch.Tensor
    arguments: dict[str, Any]
    output: torch.Tensor


def measure_rounding(network: PreTrainedModel, ids: Sequence[int]) -> list[Rounding]:
    """Reads the beginning of a prompt, and returns the errors of each layer."""
    measured: list[Rounding] = []

    def see(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        _: torch.Tensor | None,
        scale: float,
    ) -> None:
        groups = query.shape[1] // key.shape[1]
        keys = key[0].repeat_interleave(groups, dim=0)
        values = value[0].repeat_interleave(groups, dim=0)
        measured.append(measure_products(Attended(query[0], keys, values, scale)))

    # One pass serves both: attention shows its factors while the hooks note whole layers.
    with attention_seen(network, see), _noted_layers(network) as passes:
        read_logits(network, ids[: LENGTHS[-1]], DynamicCache())
    errors = _propagation(network, passes)
    for of_layer, (alone, propagated) in zip(measured, errors, strict=True):
        of_layer.alone = alone
        of_layer.propagated = propagated
    return measured


@contextmanager
def _noted_layers(network: PreTrainedModel) -> Iterator[list[_LayerPass]]:
    """Notes what each layer reads and puts out inside a ``with`` block."""
    noted: list[_LayerPass] = []

    def note(
        _: Any, inputs: tuple[torch.Tensor, ...], arguments: dict[str, Any], output: torch.Tensor
    ) -> None:
        noted.append(_LayerPass(inputs[0], arguments, output))

    layers = find_decoder(network).layers
    handles = [layer.register_forward_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield noted
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def measure_products(attended: Attended) -> Rounding:
    """Measures the products of the last query of each length, as an answer's token has them."""
    rounding = Rounding()
    for length in LENGTHS:
        if length > attended.keys.shape[1]:
            break
        # (heads, head_dim, 1): the query that has just so many tokens to attend to.
        query = attended.query[:, length - 1, :, None]
        keys = attended.keys[:, :length]
        values = attended.values[:, :length]
        exact_scores = keys.double() @ query.double()
        # From exact scores, and rounded once: the error of the output is then that of the second
        # product alone.
        weights = (exact_scores * attended.scale).softmax(1).to(values.dtype).mT
        exact_output = weights.double() @ values.double()
        scores = (keys @ query)[..., 0]
        output = (weights @ values)[:, 0]
        rounding.lengths.append(length)
        rounding.scores.append(_relative(scores, exact_scores[..., 0]))
        rounding.outputs.append(_relative(output, exact_output[:, 0]))
    return rounding


def _relative(rounded: torch.Tensor, exact: torch.Tensor) -> float:
    """Returns the mean over rows of their distance over the length of the exact row."""
    distance = (rounded.double() - exact).norm(dim=-1)
    return float((distance / exact.norm(dim=-1)).mean())


@torch.no_grad()
def _propagation(
    network: PreTrainedModel, passes: Sequence[_LayerPass]
) -> Iterator[tuple[float, float]]:
    """Yields by layer the error that it adds to an exact input, and that of all layers so far. One
    layer at a time is copied to float64, so that no second network is needed."""
    # Exact from the first layer on: each exact layer reads what the one before it made.
    stream = passes[0].stream.double()
    for layer, layer_pass in zip(find_decoder(network).layers, passes, strict=True):
        exact_layer = layer_in_float64(layer)
        arguments = {}
        for name, value in layer_pass.arguments.items():
            # The cache holds rows of the network's own dtype; a layer that gets the whole sequence
            # makes its own.
            if name not in CACHES:
                arguments[name] = _doubled(value)
        arguments["use_cache"] = False
        alone = exact_layer(layer_pass.stream.double(), **arguments)
        stream = exact_layer(stream, **arguments)
        output = layer_pass.output[0]
        yield _relative(output, alone[0]), _relative(output, stream[0])


def _doubled(value: Any) -> Any:
    """Returns numbers, also those in a tuple such as the angles of positions, in float64; anything
    else as it is."""
    if isinstance(value, tuple):
        return tuple(_doubled(part) for part in value)
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value
