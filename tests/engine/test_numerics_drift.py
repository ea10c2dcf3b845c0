"""Layers of cache on against those of cache off: distance, cosine and attention by hand, and what
is planted in a head is found in that head."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.decoding_paths import difference
from kvbench.engine.studies.drift import attention_noted, cosine_between, log_weights, measure_drift
from kvbench.engine.studies.states import read_states
from kvbench.models.load import attention
from kvbench.models.precision import in_dtype
from tests.support.models.toy import gemma3_text, model_of, toy_model

IDS = (11, 42, 7, 99, 123, 250, 31, 8, 77)
WRITTEN = (5, 6, 7, 8)


def test_the_divergence_of_jensen_and_shannon_by_hand() -> None:
    """3/4 and 1/4 against 1/2 and 1/2, whose mean is 5/8 and 3/8."""
    first, second = torch.tensor([math.log(3), 0.0]), torch.tensor([0.0, 0.0])
    of_first = 0.75 * math.log(6 / 5) + 0.25 * math.log(2 / 3)
    of_second = 0.5 * math.log(4 / 5) + 0.5 * math.log(4 / 3)
    assert difference(first, second).js == pytest.approx((of_first + of_second) / 2, abs=1e-7)
    assert difference(first, second).js == pytest.approx(difference(second, first).js, abs=1e-15)
    assert difference(first, first).js == 0.0


def test_distributions_that_share_nothing_are_ln_2_apart_and_no_more() -> None:
    first, second = torch.tensor([900.0, 0.0]), torch.tensor([0.0, 900.0])
    measured = difference(first, second)
    assert measured.kl == pytest.approx(900)
    assert math.log(2) - 1e-12 < measured.js <= math.log(2)


def test_a_cosine_by_hand_which_is_exactly_1_of_equal_vectors() -> None:
    one, other = torch.tensor([3.0, 4.0]).double(), torch.tensor([4.0, 3.0]).double()
    assert cosine_between(one, other) == pytest.approx(24 / 25)
    assert cosine_between(one, -one) == pytest.approx(-1)
    assert cosine_between(one, one) == 1.0


def test_attention_by_hand() -> None:
    """Two heads on one key head: scores of ln 3 and 0 beside a token that is not seen, and equal
    scores."""
    keys = torch.tensor([[[[1.0, 0.0], [0.0, 0.0], [9.0, 9.0]]]])
    query = torch.tensor([[[[math.log(3), 0.0]], [[0.0, 0.0]]]])
    mask = torch.tensor([[[[True, True, False]]]])
    expected = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64)
    assert torch.allclose(log_weights(query, keys, mask, 1.0).exp(), expected, atol=1e-7)
    added = torch.tensor([[[[0.0, 0.0, -torch.inf]]]])
    assert torch.allclose(log_weights(query, keys, added, 1.0).exp(), expected, atol=1e-7)


WINDOW = 4  # tokens that a sliding layer sees


def sliding() -> PreTrainedModel:
    return gemma3_text(window=WINDOW)


@pytest.mark.parametrize(("build", "seen"), [(None, [9, 9]), (sliding, [WINDOW, 9])])
def test_what_is_noted_is_the_attention_of_transformers(
    build: Callable[[], PreTrainedModel] | None, seen: list[int]
) -> None:
    """Against its eager attention, which gives weights, of all tokens that are seen."""
    network = in_dtype(toy_model(build=build).network, "float64")
    with attention_noted(network) as noted:
        read_states(network, IDS, DynamicCache())
    with attention(network, "eager"):
        weights = network(torch.tensor([IDS]), output_attentions=True).attentions
    assert [of_layer.shape[1] for of_layer in noted] == seen
    for of_layer, expected in zip(noted, weights, strict=True):
        last = expected[0, :, -1, -of_layer.shape[1] :].double()
        assert torch.allclose(of_layer.exp(), last, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_to_note_attention_changes_no_bit(dtype: str) -> None:
    network = in_dtype(model_of("llama").network, dtype)
    plain = read_states(network, IDS, DynamicCache())
    with attention_noted(network) as noted:
        seen = read_states(network, IDS, DynamicCache())
    again = read_states(network, IDS, DynamicCache())
    assert len(noted) == 2, "and nothing is noted behind the block"
    for other in (seen, again):
        assert torch.equal(plain.logits, other.logits)
        assert all(torch.equal(*pair) for pair in zip(plain.hidden, other.hidden, strict=True))


def test_the_attention_of_a_head_that_is_damaged_is_that_which_parts() -> None:
    """The queries of head 1 of layer 1 are doubled wherever a token is read by itself."""
    network: PreTrainedModel = in_dtype(toy_model().network, "float64")
    projection: Any = network.model.layers[1].self_attn
    size = projection.head_dim

    def damage(_module: Any, _given: Any, output: torch.Tensor) -> torch.Tensor:
        if output.shape[1] == 1:
            output[..., size : 2 * size] *= 2
        return output

    projection.q_proj.register_forward_hook(damage)
    first, second = measure_drift(network, IDS, WRITTEN)
    assert max(first.attention_kl) < 1e-12
    assert second.attention_kl[1] > 1e-6
    assert max(*second.attention_kl[:1], *second.attention_kl[2:]) < 1e-12


def test_distance_and_cosine_are_of_each_step() -> None:
    layers = measure_drift(in_dtype(model_of("llama").network, "float16"), IDS, WRITTEN)
    for layer in layers:
        assert (layer.hidden_l2[0], layer.hidden_cosine[0]) == (0.0, 1.0), (
            "both read the prompt at once"
        )
        assert len(layer.hidden_l2) == len(layer.hidden_cosine) == 1 + len(WRITTEN)
        assert max(layer.hidden_l2) > 0.0
        # Of small angles: 1 - cosine is half the squared angle, and the distance at least as large
        # as the angle.
        for relative, cosine in zip(layer.hidden, layer.hidden_cosine, strict=True):
            assert 0.0 <= 1 - cosine <= relative**2


def test_an_answer_of_one_token_has_no_attention_to_compare() -> None:
    layers = measure_drift(model_of("llama").network, IDS, ())
    assert [layer.attention_kl for layer in layers] == [[], []]
