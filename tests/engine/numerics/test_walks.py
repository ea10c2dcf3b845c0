"""Cache on and cache off compute the same but for rounding, and what is planted between them is measured as it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from kvbench.engine.studies.walks import (
    NULL_STEPS,
    Cached,
    Walk,
    WalkPlan,
    Whole,
    forced_walk,
    free_running,
    free_walk,
    null_walk,
    sampler,
    teacher_forced,
)
from kvbench.models.precision import check_dtypes, in_dtype
from kvbench.system.errors import KVBenchError
from tests.support.models.plain_llama import PlainLlama
from tests.support.models.toy import model_of

IDS = (11, 42, 7, 99, 123, 250, 31, 8, 77)
STEPS = 8
PLAN = WalkPlan(IDS, sampler("greedy", 0, "q", 0), STEPS)


def network_in(dtype: str) -> PreTrainedModel:
    return in_dtype(model_of("llama").network, dtype)


@dataclass
class Damaged(Cached):
    """Adds a number to the first channel of one key row of the first layer once the prompt is read."""

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
    """Walks teacher-forced and free-running beside rows that are damaged so much that answers part."""
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
        step for step, (one, other) in enumerate(zip(free.tokens, free.other_tokens, strict=True)) if one != other
    )
    assert 0 < flip < 7
    assert free.differences[: flip + 1] == forced.differences[: flip + 1]
    assert free.differences[flip + 1 :] != forced.differences[flip + 1 :]
    assert free.tokens == forced.tokens, "the first path goes its own way in both"


def test_answers_that_are_equal_are_not_walked_again() -> None:
    network = network_in("float32")
    forced = forced_walk(network, PLAN)
    assert free_walk(network, PLAN, forced) is forced
    parted = Walk(forced.tokens, forced.tokens[::-1], forced.differences)
    assert free_walk(network, PLAN, parted) == forced


def test_a_path_that_ends_leaves_the_other_to_go_on() -> None:
    network = network_in("float32")
    _, plain = both_walks(network)
    end = next(token for step, token in enumerate(plain.tokens) if token not in plain.other_tokens[: step + 3])
    forced, ended = both_walks(network, WalkPlan(IDS, PLAN.choose, STEPS, ends=(end,)))
    assert ended.tokens == plain.tokens[: plain.tokens.index(end) + 1]
    assert len(ended.other_tokens) > len(ended.tokens) == len(ended.differences)
    assert forced.tokens == ended.tokens


def test_tokens_that_are_given_are_read_in_place_of_those_chosen() -> None:
    network, given = network_in("float32"), (3, 4, 5)
    walk = forced_walk(network, WalkPlan(IDS, PLAN.choose, STEPS, given=given))
    path = Whole(network)
    rows = [path.read(IDS), path.read(given[:1]), path.read(given[1:2])]
    assert walk.other_tokens == [int(row.argmax()) for row in rows]


def test_the_null_row_is_of_the_first_steps_and_no_larger_than_rounding() -> None:
    network = network_in("float32")
    long = WalkPlan(tuple(range(20, 100)), PLAN.choose, STEPS)
    walk = null_walk(network, long, [5] * STEPS)
    assert len(walk.differences) == NULL_STEPS
    assert max(one.kl for one in walk.differences) < 1e-8


def test_weights_are_cast_and_frequencies_are_not() -> None:
    network, cast = model_of("llama").network, network_in("float16")
    assert {weight.dtype for weight in cast.parameters()} == {torch.float16}
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
    assert {buffer.dtype for _, buffer in cast.named_buffers()} == {torch.float32}
    assert in_dtype(network, "float32") is network


def test_a_dtype_that_a_device_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_dtypes(["float32", "bfloat16"], torch.device("cpu"))

    def refuse(*_: object) -> None:
        raise RuntimeError("not implemented for 'BFloat16'\nmore")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    with pytest.raises(KVBenchError, match=r"^--dtypes: this cpu has no bfloat16 .*: leave it out$"):
        check_dtypes(["bfloat16"], torch.device("cpu"))
