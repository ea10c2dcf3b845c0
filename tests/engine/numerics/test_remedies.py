"""Remedies compute the same function in other roundings, and groups of heads are of equal function."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from kvbench.engine.numerics.grouping import (
    QUERY_HEADS,
    by_group_size,
    group_size,
    random_network,
    with_groups_of,
)
from kvbench.engine.numerics.measures import difference
from kvbench.engine.numerics.paths import Cached, Path, Whole, logits_of
from kvbench.engine.numerics.remedies import EVERY, Recomputed, remedied_paths, with_float32_rows
from kvbench.models.precision import in_dtype
from tests.support.models.toy import model_of

IDS = tuple(range(20, 52))
MORE = (5, 6, 7)


def _values(path: Cached) -> torch.Tensor:
    values = path.cache.layers[0].values
    assert values is not None
    return values.double()


def rows_of(path: Path, more: Sequence[int] = MORE) -> list[torch.Tensor]:
    return [path.begin(IDS), *map(path.extend, more)]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_remedies_are_the_same_function(architecture: str) -> None:
    network = model_of(architecture).network
    expected = rows_of(Whole(network))
    for name, path in remedied_paths(network).items():
        apart = [difference(*pair).kl for pair in zip(expected, rows_of(path), strict=True)]
        assert max(apart) < 1e-8, name


def test_rows_in_float32_are_nearer_to_exact_ones_and_are_kept_so() -> None:
    network = in_dtype(model_of("llama").network, "bfloat16")
    with_rows = with_float32_rows(network)
    assert with_rows is not None
    cached = Cached(with_rows, float32_attention=True)
    rows_of(cached)
    assert {layer.keys.dtype for layer in cached.cache.layers if layer.keys is not None} == {torch.float32}
    plain = Cached(network)
    rows_of(plain)
    exact = Cached(in_dtype(network, "float64"))
    rows_of(exact)
    errors = [float((_values(one) - _values(exact)).norm()) for one in (cached, plain)]
    assert errors[0] < errors[1]
    assert with_rows.get_input_embeddings().weight is network.get_input_embeddings().weight


def test_attention_in_float32_rounds_otherwise() -> None:
    network = in_dtype(model_of("llama").network, "bfloat16")
    plain, in_float32 = (Cached(network, float32_attention=one).begin(IDS) for one in (False, True))
    assert 0 < difference(plain, in_float32).kl < 0.1
    assert network.config._attn_implementation == "sdpa"


def test_a_recomputed_cache_is_that_of_one_prefill_whenever_enough_tokens_were_written() -> None:
    network = model_of("llama").network
    path, more = Recomputed(network), tuple(range(60, 60 + EVERY))
    rows = rows_of(path, more)
    assert torch.equal(rows[EVERY], Whole(network).begin((*IDS, *more)))
    assert torch.equal(rows[EVERY - 1], rows_of(Cached(network), more)[EVERY - 1])
    rows_of(path, more[:1])
    assert path.cache.get_seq_length() == len(IDS) + 1


def test_models_without_projections_of_keys_have_no_such_remedy() -> None:
    network = model_of("phi3").network
    assert with_float32_rows(network) is None
    assert "on, float32 cache" not in remedied_paths(network)
    assert group_size(network) is None


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_repeated_heads_leave_the_function_as_it_is(architecture: str) -> None:
    network = in_dtype(model_of(architecture).network, "float64")
    assert group_size(network) == 2
    alone = with_groups_of(network, 1)
    cache = DynamicCache()
    assert torch.allclose(logits_of(alone, IDS, cache), logits_of(network, IDS, DynamicCache()), atol=1e-8)
    assert [layer.keys.shape[1] for layer in cache.layers if layer.keys is not None] == [4, 4]
    assert group_size(network) == 2, "the network stays as it was"


def test_drift_is_measured_for_every_group_of_heads() -> None:
    network = model_of("llama").network
    groups = list(by_group_size(network, "float32", IDS, seed=3))
    assert [(whose, size) for whose, size, _ in groups] == [
        ("model", 1),
        ("model", 2),
        *(("random", size) for size in (1, 2, 4, QUERY_HEADS)),
    ]
    for _, _, layers in groups:
        assert all(len(one.hidden) == 4 for one in layers)
        assert 0 < np.mean(layers[-1].hidden) < 1e-4


def test_random_weights_are_those_of_a_seed() -> None:
    one, same, other = (random_network(50, seed).state_dict()["lm_head.weight"] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
