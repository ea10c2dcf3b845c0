"""States of both paths are those of a plain computation, and an error is found, by drift and by patches, where it was
planted."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.layers import (
    ALL,
    LayerDrift,
    Patched,
    States,
    drift_of,
    localise,
    patched,
    place_of,
    read_states,
)
from kvbench.engine.studies.walks import Difference, Walk, divergence, log_probabilities, logits_of
from kvbench.models.precision import in_dtype
from tests.support.models.plain_llama import PlainLlama
from tests.support.models.toy import model_of, toy_model

IDS = (11, 42, 7, 99, 123, 250, 31, 8, 77)
WRITTEN = (5, 6, 7, 8)
TOKEN = 5


def drift(network: PreTrainedModel) -> list[LayerDrift]:
    return drift_of(network, IDS, WRITTEN)


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


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "phi3", "gemma3"])
def test_noting_changes_no_bit_of_the_logits(architecture: str) -> None:
    network = model_of(architecture).network
    assert torch.equal(read_states(network, IDS, DynamicCache()).logits, logits_of(network, IDS, DynamicCache()))


def test_drift_is_as_large_as_rounding_and_has_a_number_for_each_step_and_position() -> None:
    largest = {}
    for dtype in ("float64", "float32", "float16"):
        layers = drift(in_dtype(model_of("llama").network, dtype))
        assert {len(one.hidden) for one in layers} == {1 + len(WRITTEN)}
        assert {len(one.keys) for one in layers} == {len(IDS) + len(WRITTEN)}
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
    row = read_states(network, (*IDS, WRITTEN[0]), DynamicCache()).values[1][:, -1]
    assert second.values[len(IDS)] == pytest.approx(3.0 / float(row.norm()), rel=1e-9)
    assert max(first.hidden) < 1e-12 < 1e-6 < min(second.hidden[1:])
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


def recoveries(patches: list[Patched]) -> dict[tuple[str, int], float]:
    return {(one.rows, one.layer): 1 - one.kl_patched / one.kl for one in patches}


def with_damaged_row(network: PreTrainedModel, layer: int) -> tuple[States, States]:
    """Cache on with one key row of a layer damaged, and cache off."""
    on = read_states(network, IDS, DynamicCache())
    on.keys[layer][0, 4] += 6.0
    return on, read_states(network, (*IDS, TOKEN), DynamicCache())


def test_a_damaged_row_is_recovered_by_rows_of_its_layer_alone() -> None:
    network = in_dtype(model_of("llama").network, "float64")
    on, off = with_damaged_row(network, layer=1)
    patches = list(patched(network, TOKEN, on, off))
    recovered = recoveries(patches)
    cache = DynamicCache()
    for layer, rows_of_layer in enumerate(zip(on.keys, on.values, strict=True)):
        cache.update(rows_of_layer[0][None], rows_of_layer[1][None], layer)
    row = logits_of(network, [TOKEN], cache)
    assert patches[0].kl == pytest.approx(divergence(log_probabilities(row), log_probabilities(off.logits)), rel=1e-9)
    assert patches[0].kl > 1e-4
    for rows in ("keys and values", "both"):
        assert recovered[rows, 1] == pytest.approx(1, abs=1e-9)
        assert recovered[rows, ALL] == pytest.approx(1, abs=1e-9)
    assert recovered["keys and values", 0] == pytest.approx(0, abs=1e-9)
    assert recovered["residual", 0] == pytest.approx(0, abs=1e-9), "the error enters behind it"
    assert recovered["residual", 1] == recovered["residual", ALL] == 1, "logits are the last layer's stream"


def test_an_error_that_enters_early_goes_with_the_stream_behind_it() -> None:
    network = in_dtype(model_of("llama").network, "float64")
    recovered = recoveries(list(patched(network, TOKEN, *with_damaged_row(network, layer=0))))
    assert recovered["residual", 0] == pytest.approx(1, abs=1e-9)
    assert recovered["keys and values", 1] < 0.5


def test_errors_of_tokens_that_were_written_alone_lie_in_their_rows() -> None:
    """The values of every token that is read by itself are damaged, those of the last one too."""
    network = in_dtype(toy_model().network, "float64")
    projection: Any = network.model.layers[0].self_attn.v_proj

    def damage(_module: Any, _given: Any, output: torch.Tensor) -> None:
        if output.shape[1] == 1:
            output[..., 0] += 3.0

    projection.register_forward_hook(damage)
    recovered = recoveries(list(localise(network, IDS, (5, 6, 7))))
    assert 0 < recovered["keys and values", ALL] < 1, "what the last token does to its own row stays"
    assert recovered["both", ALL] == 1


def walk(tokens: list[int], others: list[int], kl: list[float]) -> Walk:
    differences = [Difference(one, 0.0, True, 0.0) for one in kl]
    return Walk(tokens, others, differences)


def test_the_flip_is_looked_at_or_else_the_step_with_the_largest_divergence() -> None:
    assert place_of(walk([1, 2, 3, 4], [1, 2, 5, 6], [0, 9, 1, 9])) == (2, True)
    assert place_of(walk([1, 2, 3], [1, 2, 3], [0, 1e-9, 1e-7])) == (2, False)
    assert place_of(walk([1, 2], [1, 2], [0, 0])) is None
