"""Makes models of equal function in which other numbers of query heads share a head of keys and values."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from kvbench.engine.numerics.drift import LayerDrift, drift_of
from kvbench.models.load import decoder_of
from kvbench.models.precision import in_dtype, with_same_weights

QUERY_HEADS, LAYERS, HEAD_SIZE = 8, 4, 16  # of the model with random weights
WRITTEN = 3  # the last tokens of a text, which cache on reads one by one
Group = tuple[str, int, list[LayerDrift]]  # whose weights, query heads that share a head, drift by layer


def group_size(network: PreTrainedModel) -> int | None:
    """Returns how many query heads share a head; None where keys have no projection of their own to repeat."""
    attention = decoder_of(network).layers[0].self_attn
    return int(attention.num_key_value_groups) if hasattr(attention, "k_proj") else None


def with_groups_of(network: PreTrainedModel, size: int) -> PreTrainedModel:
    """Returns a model of the same function in which ``size`` query heads share a head: each head of keys and values is
    repeated for the query heads that shared it. ``size`` divides the network's own."""
    regrouped = with_same_weights(network)
    for layer in decoder_of(regrouped).layers:
        attention = layer.self_attn
        repeats = attention.num_key_value_groups // size
        attention.num_key_value_groups = size
        for projection in (attention.k_proj, attention.v_proj):
            _repeat(projection, attention.head_dim, repeats)
    return regrouped


@torch.no_grad()
def _repeat(projection: torch.nn.Linear, head_size: int, repeats: int) -> None:
    for name, weights in list(projection.named_parameters()):
        heads = weights.unflatten(0, (-1, head_size))
        repeated = heads.repeat_interleave(repeats, 0).flatten(0, 1)
        setattr(projection, name, torch.nn.Parameter(repeated, requires_grad=False))


def random_network(vocabulary: int, seed: int) -> PreTrainedModel:
    """Makes a small model with random weights in which all query heads share one head."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=QUERY_HEADS * HEAD_SIZE,
        intermediate_size=2 * QUERY_HEADS * HEAD_SIZE,
        num_hidden_layers=LAYERS,
        num_attention_heads=QUERY_HEADS,
        num_key_value_heads=1,
        initializer_range=0.1,  # wide enough that what attention reads matters
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network: PreTrainedModel = LlamaForCausalLM(config).eval()
    return network


def by_group_size(network: PreTrainedModel, dtype: str, ids: Sequence[int], seed: int) -> Iterator[Group]:
    """Measures drift over the last tokens of a text, which cache on reads one by one, for the network and for random
    weights, by how many query heads share a head."""
    drawn: Any = random_network(network.config.get_text_config().vocab_size, seed)
    whose: dict[str, PreTrainedModel] = {"model": network, "random": drawn.to(network.device)}
    for name, shared in whose.items():
        largest = group_size(shared) or 0
        for size in [size for size in (1, 2, 4, 8, 16) if largest and largest % size == 0]:
            regrouped = in_dtype(with_groups_of(shared, size), dtype)
            yield name, size, drift_of(regrouped, ids[:-WRITTEN], _no_choice, WRITTEN + 1, given=(*ids[-WRITTEN:], 0))


def _no_choice(_row: torch.Tensor, _step: int) -> int:
    raise AssertionError("tokens are given")
