"""Patching finds an error where it was planted, and finds nothing where there is none."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.numerics.measures import UNKNOWN, divergence, log_probabilities
from kvbench.engine.numerics.patches import ALL, Patched, Place, localise, patched, place_of
from kvbench.engine.numerics.paths import logits_of
from kvbench.engine.numerics.regimes import Walk
from kvbench.engine.numerics.states import States, cache_of, read_states
from kvbench.models.precision import in_dtype
from tests.support.models.toy import model_of, toy_model

IDS = (11, 42, 7, 99, 123, 250, 31, 8, 77)
TOKEN = 5
LAYERS = 2


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
    row = logits_of(network, [TOKEN], cache_of(on.keys, on.values))
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


def test_the_stream_of_earlier_layers_adds_nothing_to_that_of_the_last_one_patched() -> None:
    network = in_dtype(model_of("llama").network, "float64")
    recovered = recoveries(list(patched(network, TOKEN, *with_damaged_row(network, layer=0))))
    assert [recovered["residual so far", layer] for layer in range(LAYERS)] == pytest.approx(
        [recovered["residual", layer] for layer in range(LAYERS)], abs=1e-12
    )


def test_errors_of_tokens_that_were_written_alone_lie_in_their_rows() -> None:
    """The values of every token that is read by itself are damaged, those of the last one too."""
    network = in_dtype(toy_model().network, "float64")
    projection: Any = network.model.layers[0].self_attn.v_proj

    def damage(_module: Any, _given: Any, output: torch.Tensor) -> None:
        if output.shape[1] == 1:
            output[..., 0] += 3.0

    projection.register_forward_hook(damage)
    recovered = recoveries(localise(network, IDS, (5, 6, 7)))
    assert 0 < recovered["keys and values", ALL] < 1, "what the last token does to its own row stays"
    assert recovered["both", ALL] == 1


def walk(tokens: list[int], others: list[int], kl: list[float]) -> Walk:
    differences = [UNKNOWN.__class__(one, 0.0, 0.0, 0.0, True, 0.0, 0.0) for one in kl]
    return Walk(tokens, others, differences)


def test_the_flip_is_looked_at_or_else_the_step_with_the_largest_divergence() -> None:
    assert place_of(walk([1, 2, 3, 4], [1, 2, 5, 6], [0, 9, 1, 9])) == Place(2, True)
    assert place_of(walk([1, 2, 3], [1, 2, 3], [0, 1e-9, 1e-7])) == Place(2, False)
    assert place_of(walk([1, 2], [1, 2], [0, 0])) is None
