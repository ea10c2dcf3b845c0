"""Cache rows and hidden states of both paths are those of a plain computation, and what is planted is found there."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.numerics.drift import LayerDrift, drift_of, product_errors
from kvbench.engine.numerics.paths import logits_of
from kvbench.engine.numerics.sampling import sampler
from kvbench.engine.numerics.states import read_states
from kvbench.models.precision import in_dtype
from tests.support.models.plain_llama import PlainLlama
from tests.support.models.toy import model_of, toy_model

IDS = (11, 42, 7, 99, 123, 250, 31, 8, 77)
GREEDY = sampler("greedy", 0, "q", 0)
STEPS = 5


def drift(network: PreTrainedModel) -> list[LayerDrift]:
    return drift_of(network, IDS, GREEDY, STEPS)


@pytest.fixture
def network() -> PreTrainedModel:
    """A network of its own in float64, which a test may damage."""
    return in_dtype(toy_model().network, "float64")


def test_states_are_those_of_a_plain_llama() -> None:
    network = in_dtype(model_of("llama").network, "float64")
    plain = PlainLlama(network)
    logits = [plain.read(token) for token in IDS][-1]
    states = read_states(network, IDS, DynamicCache())
    assert np.allclose(states.logits.numpy(), logits, atol=5e-5)
    for layer in range(2):
        assert np.allclose(states.keys[layer].transpose(0, 1).numpy(), np.stack(plain.keys[layer]), atol=5e-5)
        assert np.allclose(states.values[layer].transpose(0, 1).numpy(), np.stack(plain.values[layer]), atol=5e-5)
        assert torch.allclose(states.log_attention[layer].exp().sum(-1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "phi3", "gemma3"])
def test_noting_changes_no_bit_of_the_logits(architecture: str) -> None:
    network = model_of(architecture).network
    assert torch.equal(read_states(network, IDS, DynamicCache()).logits, logits_of(network, IDS, DynamicCache()))


def test_drift_is_as_large_as_rounding_and_has_a_number_for_each_step_and_position() -> None:
    largest = {}
    for dtype in ("float64", "float32", "float16"):
        layers = drift(in_dtype(model_of("llama").network, dtype))
        assert {len(one.hidden) for one in layers} == {STEPS}
        assert {len(one.keys) for one in layers} == {len(IDS) + STEPS - 1}
        assert {len(one.attention_kl) for one in layers} == {4}
        assert [one.hidden[0] for one in layers] == [0.0, 0.0], "both read the prompt at once"
        largest[dtype] = max(max(one.hidden) for one in layers)
    assert largest["float64"] < 1e-12 < largest["float32"] < 1e-5 < largest["float16"] < 1e-2


def test_an_error_in_rows_written_alone_is_found_at_its_layer_and_positions(network: PreTrainedModel) -> None:
    """A number is added to one channel of the values of layer 1, wherever a token is read by itself."""
    projection: Any = network.model.layers[1].self_attn.v_proj
    sound = drift(network)

    def damage(_module: Any, _given: Any, output: torch.Tensor) -> torch.Tensor:
        if output.shape[1] == 1:
            output[..., 0] += 3.0
        return output

    projection.register_forward_hook(damage)
    first, second = drift(network)
    assert first.values == pytest.approx(sound[0].values, abs=1e-12)
    assert second.values[: len(IDS)] == pytest.approx([0.0] * len(IDS), abs=1e-12)
    assert second.values_written[1] == pytest.approx(second.values[len(IDS)], rel=1e-9)
    token = int(logits_of(network, IDS, DynamicCache()).argmax())
    row = read_states(network, (*IDS, token), DynamicCache()).values[1][:, -1]
    assert second.values[len(IDS)] == pytest.approx(3.0 / float(row.norm()), rel=1e-9)
    assert max(first.added_l2) < 1e-12 < 1e-6 < min(second.added_l2[1:])
    assert max(second.keys) < 1e-12, "keys of that layer do not read its values"


def test_a_wrong_position_moves_keys_of_the_first_layer_and_leaves_its_values(network: PreTrainedModel) -> None:
    rotary: Any = network.model.rotary_emb

    def shift(_module: Any, given: Any, named: dict[str, Any]) -> Any:
        positions = named["position_ids"] if "position_ids" in named else given[1]
        late = positions + 1 if positions.shape[-1] == 1 else positions
        return (given[0], late), {}

    rotary.register_forward_pre_hook(shift, with_kwargs=True)
    first, _ = drift(network)
    assert max(first.values) < 1e-12
    assert max(first.keys[: len(IDS)]) < 1e-12
    assert min(first.keys[len(IDS) :]) > 0.05


def test_errors_that_each_layer_adds_account_for_what_is_measured() -> None:
    layers = drift(model_of("llama").network)
    added = np.sqrt(np.cumsum([np.square(one.added_l2[1:]) for one in layers], axis=0))
    measured = np.array([one.hidden_l2[1:] for one in layers])
    assert 0.5 < measured.mean() / added.mean() < 3


def test_errors_of_dot_products_are_those_of_the_numbers() -> None:
    network = model_of("llama").network
    state = torch.randn(64, generator=torch.Generator().manual_seed(0))
    lengths, single = product_errors(network, state)
    _, half = product_errors(in_dtype(network, "bfloat16"), state.bfloat16())
    _, double = product_errors(in_dtype(network, "float64"), state.double())
    assert lengths == [16, 32, 64]
    assert max(double) == 0.0
    assert all(1e-10 < one < 1e-6 < other < 1e-2 for one, other in zip(single, half, strict=True))
