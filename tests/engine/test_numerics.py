"""Cache on and cache off: how far logits and layers are apart, by hand, and what is planted between
them is found."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.decoding_paths import (
    Cached,
    Difference,
    Walk,
    WalkPlan,
    Whole,
    difference,
    divergence,
    forced_walk,
    free_running,
    log_probabilities,
    read_logits,
    sampler,
    teacher_forced,
)
from kvbench.engine.studies.drift import LayerDrift, measure_drift
from kvbench.engine.studies.patching import ALL, Patched, choose_step, patched
from kvbench.engine.studies.states import States, read_states
from kvbench.models import precision
from kvbench.models.precision import in_dtype
from tests.support.models.plain_llama import PlainLlama
from tests.support.models.toy import model_of, toy_model


def test_two_tokens_by_hand() -> None:
    """Probabilities 3/4 and 1/4 against 1/2 and 1/2."""
    first, second = torch.tensor([math.log(3), 0.0]), torch.tensor([0.0, 0.0])
    measured = difference(first, second)
    assert measured.kl == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-7)
    assert measured.largest == pytest.approx(math.log(2), abs=1e-7)
    assert measured.margin == pytest.approx(math.log(3), abs=1e-6)
    assert measured.same_top


@pytest.mark.parametrize("way", ["greedy", "top_k", "top_p"])
def test_logits_that_overflow_end_no_walk(way: str) -> None:
    row = torch.full((60,), math.nan)
    assert sampler(way, 0, "q", 0)(row, 0) == 0
    row[:5] = 1.0
    assert sampler(way, 0, "q", 0)(row, 0) == 5


IDS = (11, 42, 7, 99, 123, 250, 31, 8, 77)
STEPS = 8
PLAN = WalkPlan(IDS, sampler("greedy", 0, "q", 0), STEPS)


def network_in(dtype: str) -> PreTrainedModel:
    return in_dtype(model_of("llama").network, dtype)


@dataclass
class Damaged(Cached):
    """Adds a number to the first channel of one key row of the first layer once the prompt is
    read."""

    amount: float = 8.0

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        is_prompt = self.cache.get_seq_length() == 0
        row = super().read(tokens)
        keys = self.cache.layers[0].keys
        assert keys is not None
        if is_prompt:
            keys[:, 0, 4, 0] += self.amount
        return row


def both_walks(network: PreTrainedModel, plan: WalkPlan = PLAN) -> tuple[Walk, Walk]:
    """Walks teacher-forced and free-running beside rows that are damaged so much that answers
    part."""
    return (
        teacher_forced(Cached(network), Damaged(network, amount=60.0), plan),
        free_running(Cached(network), Damaged(network, amount=60.0), plan),
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_the_same_path_twice_gives_the_same_bits(dtype: str) -> None:
    network = network_in(dtype)
    for walk in (teacher_forced(kind(network), kind(network), PLAN) for kind in (Cached, Whole)):
        assert [(one.kl, one.largest) for one in walk.differences] == [(0.0, 0.0)] * STEPS


def test_rounding_alone_parts_cache_on_and_cache_off() -> None:
    single, double, half = (
        max(one.largest for one in forced_walk(network_in(dtype), PLAN).differences)
        for dtype in ("float32", "float64", "bfloat16")
    )
    assert double < 1e-10 < single < 1e-2 < half


def test_both_paths_are_a_plain_llama() -> None:
    network, plain = network_in("float64"), PlainLlama(network_in("float64"))
    expected = [plain.read(token) for token in (*IDS, 5, 6)][-3:]
    for path in (Cached(network), Whole(network), Whole(network, chunk=4)):
        rows = [path.read(IDS), path.read([5]), path.read([6])]
        assert np.allclose(torch.stack(rows).numpy(), expected, rtol=0, atol=5e-5), (
            "transformers norms and rotates in float32"
        )


def test_a_damaged_key_row_gives_the_divergence_of_a_plain_computation() -> None:
    network = network_in("float64")
    walk = teacher_forced(Damaged(network), Whole(network), PLAN)
    damaged, sound = PlainLlama(network), PlainLlama(network)
    for plain in (damaged, sound):
        for token in IDS:
            plain.read(token)
    damaged.keys[0][4][0, 0] += 8.0
    for token, measured in zip(walk.tokens[:2], walk.differences[1:3], strict=True):
        rows = [torch.from_numpy(plain.read(token)) for plain in (damaged, sound)]
        log_p, log_q = (torch.log_softmax(row, -1) for row in rows)
        assert measured.kl == pytest.approx(float((log_p.exp() * (log_p - log_q)).sum()), rel=1e-3)
        assert measured.kl > 1e-6, "the planted error is seen at all"


def test_until_they_differ_free_running_paths_are_the_teacher_forced_ones() -> None:
    forced, free = both_walks(network_in("float32"))
    flip = next(
        step
        for step, (one, other) in enumerate(zip(free.tokens, free.other_tokens, strict=True))
        if one != other
    )
    assert 0 < flip < 7
    assert free.differences[: flip + 1] == forced.differences[: flip + 1]
    assert free.differences[flip + 1 :] != forced.differences[flip + 1 :]
    assert free.tokens == forced.tokens, "the first path goes its own way in both"


WRITTEN = (5, 6, 7, 8)
TOKEN = 5


def drift(network: PreTrainedModel) -> list[LayerDrift]:
    return measure_drift(network, IDS, WRITTEN)


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
        assert np.allclose(
            states.keys[layer].transpose(0, 1).numpy(), np.stack(plain.keys[layer]), atol=5e-5
        )
        assert np.allclose(
            states.values[layer].transpose(0, 1).numpy(), np.stack(plain.values[layer]), atol=5e-5
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_of_16_bits_are_those_of_float32_rounded(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against torch's own products: nearly all numbers are the same, the others neighbours."""
    torch.manual_seed(0)
    given = torch.randn(50, 64, dtype=getattr(torch, dtype))
    made = {}
    for has_products in (True, False):
        monkeypatch.setattr(precision, "multiplies", lambda _, answer=has_products: answer)
        layer = in_dtype(model_of("llama").network, dtype).model.layers[0].self_attn.q_proj
        assert ("forward" in vars(layer)) != has_products
        assert layer.weight.dtype == given.dtype
        made[has_products] = layer(given)
    one, other = made[True], made[False]
    assert one.dtype == other.dtype == given.dtype
    assert (one == other).float().mean() > 0.9
    assert torch.allclose(
        one.double(), other.double(), rtol=2 * torch.finfo(given.dtype).eps, atol=1e-3
    )


def test_drift_is_as_large_as_rounding_and_has_a_number_for_each_step_and_position() -> None:
    largest = {}
    for dtype in ("float64", "float32", "float16"):
        layers = drift(in_dtype(model_of("llama").network, dtype))
        assert {len(one.hidden) for one in layers} == {1 + len(WRITTEN)}
        assert {len(one.keys) for one in layers} == {len(IDS) + len(WRITTEN)}
        assert [one.hidden[0] for one in layers] == [0.0, 0.0], "both read the prompt at once"
        largest[dtype] = max(max(one.hidden) for one in layers)
    assert largest["float64"] < 1e-12 < largest["float32"] < 1e-5 < largest["float16"] < 1e-2


def test_an_error_in_rows_written_alone_is_found_at_its_layer_and_positions(
    network: PreTrainedModel,
) -> None:
    """A number is added to one channel of the values of layer 1, wherever a token is read by
    itself."""
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
    row = read_logits(network, [TOKEN], cache)
    assert patches[0].kl == pytest.approx(
        divergence(log_probabilities(row), log_probabilities(off.logits)), rel=1e-9
    )
    assert patches[0].kl > 1e-4
    for rows in ("keys and values", "both"):
        assert recovered[rows, 1] == pytest.approx(1, abs=1e-9)
        assert recovered[rows, ALL] == pytest.approx(1, abs=1e-9)
    assert recovered["keys and values", 0] == pytest.approx(0, abs=1e-9)
    assert recovered["residual", 0] == pytest.approx(0, abs=1e-9), "the error enters behind it"
    assert recovered["residual", 1] == recovered["residual", ALL] == 1, (
        "logits are the last layer's stream"
    )


def walk(tokens: list[int], others: list[int], kl: list[float]) -> Walk:
    differences = [Difference(one, 0.0, 0.0, True, 0.0) for one in kl]
    return Walk(tokens, others, differences)


def test_the_flip_is_looked_at_or_else_the_step_with_the_largest_divergence() -> None:
    assert choose_step(walk([1, 2, 3, 4], [1, 2, 5, 6], [0, 9, 1, 9])) == (2, True)
    assert choose_step(walk([1, 2, 3], [1, 2, 3], [0, 1e-9, 1e-7])) == (2, False)
    assert choose_step(walk([1, 2], [1, 2], [0, 0])) is None
