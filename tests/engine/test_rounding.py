"""What rounding does to products is known by hand, and layers in float64 are exact to float64."""

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvbench.engine.studies.rounding import LENGTHS, Attended, measure_products, measure_rounding
from kvbench.models import precision
from kvbench.models.precision import in_dtype, layer_in_float64
from tests.support.models.toy import model_of


def test_a_product_of_16_bits_by_hand() -> None:
    """2048 + 1 is no number of float16, whose next is 2050: it becomes 2048. Sixteenths of sixteen
    ones are exact."""
    query = torch.zeros(1, 40, 2)
    query[..., 0], query[..., 1] = 2048.0, 1.0
    ones = torch.ones(1, 40, 2)
    attended = Attended(query.half(), ones.half(), ones.half(), scale=1.0)
    rounding = measure_products(attended)
    assert rounding.lengths == [16, 32]
    assert rounding.scores == pytest.approx([1 / 2049, 1 / 2049], rel=1e-12)
    assert rounding.outputs == [0.0, 0.0]
    exact = measure_products(Attended(query, ones, ones, scale=1.0))
    assert exact.scores == [0.0, 0.0]


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "phi3", "qwen3"])
def test_errors_of_layers_are_as_large_as_rounding_and_grow(architecture: str) -> None:
    ids, last = range(20, 90), {}
    for dtype in ("float64", "float32", "bfloat16"):
        first, second = measure_rounding(in_dtype(model_of(architecture).network, dtype), ids)
        assert first.lengths == [length for length in LENGTHS if length <= 70]
        assert first.alone == first.propagated, "the embedding is exact"
        last[dtype] = second
    assert last["float64"].propagated == 0.0
    assert 0 < last["float32"].propagated < 1e-5 < last["bfloat16"].propagated
    assert last["bfloat16"].propagated > last["bfloat16"].alone
    assert 1e-3 < min(last["bfloat16"].scores) < max(last["bfloat16"].scores) < 4e-3, (
        "half a unit is 2 to 4e-3"
    )


def test_the_model_is_left_as_it_was() -> None:
    network = model_of("llama").network
    before = [len(layer._forward_hooks) for layer in network.model.layers]
    attend = torch.nn.functional.scaled_dot_product_attention
    function = ALL_ATTENTION_FUNCTIONS["sdpa"]
    measure_rounding(network, range(20, 60))
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is function
    assert [len(layer._forward_hooks) for layer in network.model.layers] == before
    assert torch.nn.functional.scaled_dot_product_attention is attend


def test_a_layer_in_float64_does_not_round_where_its_copy_in_16_bits_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A processor without products of 16 bits rounds in a function of each linear layer, which no
    copy may keep."""
    monkeypatch.setattr(precision, "multiplies", lambda _: False)
    projection = in_dtype(model_of("llama").network, "bfloat16").model.layers[0].mlp.up_proj
    given = torch.linspace(-1, 1, projection.in_features, dtype=torch.float64)
    made = layer_in_float64(torch.nn.Sequential(projection))(given)
    assert torch.allclose(made, projection.weight.double() @ given, rtol=0, atol=1e-12)
