"""The residual stream of cache on is put into cache off, as arXiv 2604.15409 does it, and recovery
is what it is."""

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.studies.decoding_paths import (
    Cached,
    Difference,
    Walk,
    WalkPlan,
    Whole,
    divergence,
    forced_walk,
    log_probabilities,
    same_walk,
    sampler,
)
from kvbench.engine.studies.patching import (
    ALL,
    Patched,
    StepsAfter,
    extents,
    first_apart,
    inject,
    localise,
)
from kvbench.engine.studies.states import read_states
from kvbench.models.precision import in_dtype
from tests.support.models.toy import model_of

IDS = tuple(range(20, 60))
PLAN = WalkPlan(IDS, sampler("greedy", 0, "q", 0), 12)


@pytest.fixture(scope="module")
def network() -> PreTrainedModel:
    return in_dtype(model_of("llama").network, "bfloat16")


@pytest.fixture(scope="module")
def written_tokens(network: PreTrainedModel) -> list[int]:
    """What is written up to the first step at which both paths differ."""
    walk = forced_walk(network, PLAN)
    step = first_apart(walk)
    assert step is not None
    assert walk.differences[step].kl > 0 == walk.differences[step - 1].kl
    return walk.tokens[:step]


def test_layers_are_patched_alone_up_to_one_and_all() -> None:
    assert [(extent, layer, list(layers)) for extent, layer, layers in extents(3)] == [
        ("one", 0, [0]),
        ("one", 1, [1]),
        ("one", 2, [2]),
        ("up to", 1, [0, 1]),
        ("all", ALL, [0, 1, 2]),
    ]


def walk_of(*kl: float) -> Walk:
    tokens = [1] * len(kl)
    return Walk(tokens, tokens, [Difference(one, 0.0, 0.0, True, 0.0) for one in kl])


def test_the_first_step_that_differs_is_behind_the_prompt_which_both_read_at_once() -> None:
    assert first_apart(walk_of(0.0, 1e-12, 5.0)) == 1
    assert first_apart(walk_of(0.0, 0.0, 5.0)) == 2
    assert first_apart(walk_of(0.0, 0.0)) is None
    assert first_apart(walk_of(0.0, float("nan"), 5.0)) is None, (
        "behind an overflow nothing is known"
    )


def test_the_last_layers_stream_recovers_all_in_16_bits_and_nothing_recovers_nothing(
    network: PreTrainedModel, written_tokens: list[int]
) -> None:
    patches = {(one.layers, one.layer): one for one in inject(network, IDS, written_tokens, 4)}
    assert {one.direction for one in patches.values()} == {"on into off"}
    whole = patches["all", ALL]
    assert whole.kl > 0
    assert whole.kl_patched == 0.0, "its logits are those of cache on, to the bit"
    assert patches["one", 1].kl_patched == 0.0
    ids = [*IDS, *written_tokens]
    unpatched = read_states(network, ids, DynamicCache(), {}).logits
    cache = DynamicCache()
    rows = [
        read_states(network, tokens, cache)
        for tokens in (IDS, *([token] for token in written_tokens))
    ]
    log_on = log_probabilities(rows[-1].logits)
    assert divergence(log_on, log_probabilities(unpatched)) == whole.kl


def test_all_layers_up_to_one_are_that_one_to_the_bit(
    network: PreTrainedModel, written_tokens: list[int]
) -> None:
    """What is put behind a layer hides what was put before it, at the last token, behind which
    nothing is read."""
    cache = DynamicCache()
    for tokens in (IDS, *([token] for token in written_tokens)):
        on = read_states(network, tokens, cache)
    ids = [*IDS, *written_tokens]
    alone, cumulative = (
        read_states(
            network, ids, DynamicCache(), {layer: on.hidden[layer] for layer in layers}
        ).logits
        for layers in ((1,), (0, 1))
    )
    assert torch.equal(alone, cumulative)


def test_behind_a_patch_nothing_is_left_but_its_token(
    network: PreTrainedModel, written_tokens: list[int]
) -> None:
    """By hand: both paths go on greedily, and the mean is over the patched step and those behind
    it."""
    steps, ids = 3, [*IDS, *written_tokens]
    patches = list(inject(network, IDS, written_tokens, steps))
    on, off = Cached(network), Whole(network)
    for tokens in (IDS, *([token] for token in written_tokens[:-1])):
        on.read(tokens)
    row_on, row_off = on.read(written_tokens[-1:]), off.read(ids)
    kls = [divergence(log_probabilities(row_on), log_probabilities(row_off))]
    for _ in range(steps):
        row_on, row_off = on.read([int(row_on.argmax())]), off.read([int(row_off.argmax())])
        kls.append(divergence(log_probabilities(row_on), log_probabilities(row_off)))
    whole = patches[-1]
    assert whole.kl_after == pytest.approx(sum(kls) / len(kls), rel=1e-9)
    assert whole.kl_after_patched == pytest.approx(sum(kls[1:]) / len(kls), rel=1e-9), (
        "the same token follows"
    )


def test_a_patch_that_chooses_another_token_leads_elsewhere(network: PreTrainedModel) -> None:
    cached = Cached(network)
    row = cached.read(IDS)
    on_rows = [cached.read([int(row.argmax())])]
    after = StepsAfter(network, IDS, on_rows, ())
    same, other = (after.mean_kl(0.0, token) for token in (int(row.argmax()), int(row.argmin())))
    assert same < 1e-2 < other
    assert (
        StepsAfter(network, IDS, on_rows, {int(row.argmin())}).mean_kl(0.5, int(row.argmin()))
        == 0.5
    ), "it ends"


def test_keys_and_values_of_all_layers_repair_a_cached_answer(
    network: PreTrainedModel, written_tokens: list[int]
) -> None:
    patches = [one for one in localise(network, IDS, written_tokens) if one.rows == "both"]
    recovered = {
        (one.layers, one.layer): 1 - one.kl_patched / one.kl
        for one in patches
        if isinstance(one, Patched)
    }
    assert recovered["all", ALL] == recovered["one", 1] == 1.0


def test_cache_on_twice_is_equal_to_the_bit_on_a_processor(network: PreTrainedModel) -> None:
    tokens = forced_walk(network, PLAN).tokens
    again = same_walk(network, PLAN, tokens)
    assert len(again.differences) == len(tokens)
    assert {(one.kl, one.largest) for one in again.differences} == {(0.0, 0.0)}
