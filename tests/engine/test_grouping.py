"""Models in which other numbers of query heads share a head are one function, and leave the network
as it was."""

from itertools import pairwise

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from kvbench.engine.studies.decoding_paths import read_logits
from kvbench.engine.studies.grouping import by_group_size, group_sizes, shared_by
from kvbench.models.precision import in_dtype
from tests.support.models.toy import toy_model

IDS = (11, 42, 7, 99, 123, 250, 31, 8, 77, 5, 64, 12)


def network_of(key_heads: int, dtype: str = "float64", bias: bool = False) -> PreTrainedModel:
    """A model with random weights and eight query heads, wide enough that what attention reads
    matters."""
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=key_heads,
        initializer_range=0.1,
        attention_bias=bias,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: PreTrainedModel = LlamaForCausalLM(config).eval()
        for name, weight in network.named_parameters():
            if name.endswith("_proj.bias"):
                torch.nn.init.normal_(weight)
    return in_dtype(network, dtype)


@pytest.mark.parametrize("bias", [False, True])
def test_heads_that_are_repeated_leave_the_function_as_it_is(bias: bool) -> None:
    network = network_of(1, bias=bias)
    whole = read_logits(network, IDS, DynamicCache())
    assert group_sizes(network) == [1, 2, 4, 8]
    for size in (1, 2, 4, 8):
        cache = DynamicCache()
        with shared_by(network, size):
            logits = read_logits(network, IDS, cache)
        assert cache.layers[0].keys is not None
        assert cache.layers[0].keys.shape[1] == 8 // size, "as many heads of keys are stored"
        assert torch.allclose(logits, whole, rtol=0, atol=1e-12)


def test_the_network_is_as_it_was_behind_the_block_and_behind_an_error() -> None:
    network = network_of(2)
    before = {name: id(weight) for name, weight in network.named_parameters()}
    with pytest.raises(RuntimeError), shared_by(network, 1):
        raise RuntimeError
    assert {name: id(weight) for name, weight in network.named_parameters()} == before
    assert group_sizes(network) == [1, 2, 4]


@pytest.mark.parametrize(
    ("architecture", "sizes"), [("gemma3", True), ("qwen3", True), ("phi3", False)]
)
def test_heads_are_repeated_where_keys_have_a_projection(architecture: str, sizes: bool) -> None:
    network = in_dtype(toy_model(architecture).network, "float64")
    assert bool(group_sizes(network)) == sizes
    if sizes:
        whole = read_logits(network, IDS, DynamicCache())
        with shared_by(network, 1):
            assert torch.allclose(
                read_logits(network, IDS, DynamicCache()), whole, rtol=0, atol=1e-10
            )


def test_drift_is_as_large_as_rounding_with_every_number_of_heads() -> None:
    drifts = [
        dict(by_group_size(network_of(1, dtype), IDS))
        for dtype in ("float64", "float32", "float16")
    ]
    assert [list(drift) for drift in drifts] == [[1, 2, 4, 8]] * 3
    assert {len(layers) for layers in drifts[0].values()} == {3}
    largest = [max(map(max, drift.values())) for drift in drifts]
    assert all(less < 1e-2 * more for less, more in pairwise(largest))
