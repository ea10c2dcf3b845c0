"""Cache on and cache off compute the same but for rounding, and what is planted between them is measured as it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from kvbench.engine.numerics.measures import difference
from kvbench.engine.numerics.paths import Cached, Path, Whole
from kvbench.engine.numerics.regimes import Walk, free_running, teacher_forced
from kvbench.engine.numerics.sampling import sampler
from kvbench.models.precision import check_dtypes, in_dtype
from kvbench.system.errors import KVBenchError
from tests.support.models.plain_llama import PlainLlama
from tests.support.models.toy import model_of

IDS = (11, 42, 7, 99, 123, 250, 31, 8, 77)
GREEDY = sampler("greedy", 0, "q", 0)
PAIRS = {"cache": ("on", "off"), "on again": ("on", "on again"), "off again": ("off", "off again")}


def network_in(dtype: torch.dtype) -> PreTrainedModel:
    return in_dtype(model_of("llama").network, str(dtype).removeprefix("torch."))


def walk_in(dtype: torch.dtype, steps: int = 8) -> dict[str, Walk]:
    network = network_in(dtype)
    paths: dict[str, Path] = {
        "on": Cached(network),
        "off": Whole(network),
        "on again": Cached(network),
        "off again": Whole(network),
    }
    return teacher_forced(paths, PAIRS, IDS, GREEDY, steps, ())


@dataclass
class Late(Whole):
    """Reads a sequence without its last token: ids are shifted by one, which is the likely mistake of a text."""

    def _read(self) -> torch.Tensor:
        return Whole(self.network).begin(self.ids[:-1])


@dataclass
class Damaged(Cached):
    """Adds a number to the first channel of one key row once the prompt is read."""

    layer: int = 0
    position: int = 4
    amount: float = 8.0

    def begin(self, ids: Sequence[int]) -> torch.Tensor:
        row = super().begin(ids)
        keys = self.cache.layers[self.layer].keys
        assert keys is not None
        keys[:, 0, self.position, 0] += self.amount
        return row


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_same_path_twice_gives_the_same_bits(dtype: torch.dtype) -> None:
    walks = walk_in(dtype)
    for name in ("on again", "off again"):
        assert [(one.kl, one.largest) for one in walks[name].differences] == [(0.0, 0.0)] * 8


def test_rounding_alone_parts_cache_on_and_cache_off() -> None:
    largest = {
        dtype: max(one.largest for one in walk_in(dtype)["cache"].differences)
        for dtype in (torch.float64, torch.float32, torch.bfloat16)
    }
    assert largest[torch.float64] < 1e-10 < largest[torch.float32] < 1e-2 < largest[torch.bfloat16]


def test_both_paths_are_a_plain_llama() -> None:
    network, plain = network_in(torch.float64), PlainLlama(network_in(torch.float64))
    expected = [plain.read(token) for token in (*IDS, 5, 6)][-3:]
    for path in (Cached(network), Whole(network), Whole(network, chunk=4), Whole(network, batch=3)):
        rows = [path.begin(IDS), path.extend(5), path.extend(6)]
        assert np.allclose(torch.stack(rows).numpy(), expected, rtol=0, atol=5e-5), (
            "transformers norms and rotates in float32"
        )


def test_a_damaged_key_row_gives_the_divergence_of_a_plain_computation() -> None:
    network = network_in(torch.float64)
    paths: dict[str, Path] = {"on": Damaged(network), "off": Whole(network)}
    walk = teacher_forced(paths, {"cache": ("on", "off")}, IDS, GREEDY, 3, ())["cache"]
    damaged, sound = PlainLlama(network), PlainLlama(network)
    for plain in (damaged, sound):
        for token in IDS:
            plain.read(token)
    damaged.keys[0][4][0, 0] += 8.0
    for token, measured in zip(walk.tokens[:2], walk.differences[1:], strict=True):
        rows = [torch.from_numpy(plain.read(token)) for plain in (damaged, sound)]
        log_p, log_q = (torch.log_softmax(row, -1) for row in rows)
        assert measured.kl == pytest.approx(float((log_p.exp() * (log_p - log_q)).sum()), rel=1e-3)
        assert measured.kl > 1e-6, "the planted error is seen at all"


def test_ids_shifted_by_one_give_nats_and_agree_one_step_later() -> None:
    network = network_in(torch.float32)
    walk = teacher_forced({"on": Cached(network), "off": Late(network)}, {"cache": ("on", "off")}, IDS, GREEDY, 8, ())[
        "cache"
    ]
    assert np.mean([one.kl for one in walk.differences]) > 1
    assert np.nanmean(walk.kl_later) < 1e-6 < np.nanmean(walk.kl_earlier)


def test_other_tokens_are_refused() -> None:
    @dataclass
    class Forgetful(Whole):
        def extend(self, token: int) -> torch.Tensor:
            return self._read()

    network = network_in(torch.float32)
    with pytest.raises(KVBenchError, match="the paths on and off were given other tokens"):
        teacher_forced({"on": Cached(network), "off": Forgetful(network)}, {}, IDS, GREEDY, 3, ())


def test_until_they_differ_free_running_paths_are_the_teacher_forced_ones() -> None:
    network = network_in(torch.float32)
    forced = teacher_forced(
        {"on": Cached(network), "off": Damaged(network, amount=60.0)}, {"cache": ("on", "off")}, IDS, GREEDY, 8, ()
    )["cache"]
    free = free_running(Cached(network), Damaged(network, amount=60.0), IDS, GREEDY, 8, ())
    flip = next(
        step for step, (one, other) in enumerate(zip(free.tokens, free.other_tokens, strict=True)) if one != other
    )
    assert 0 < flip < 7
    assert free.differences[: flip + 1] == forced.differences[: flip + 1]
    assert free.differences[flip + 1 :] != forced.differences[flip + 1 :]
    assert free.tokens == forced.tokens, "the first path goes its own way in both"


def test_a_path_that_ends_leaves_the_other_to_go_on() -> None:
    network = network_in(torch.float32)
    plain = free_running(Cached(network), Damaged(network, amount=60.0), IDS, GREEDY, 8, ())
    end = next(token for step, token in enumerate(plain.tokens) if token not in plain.other_tokens[: step + 3])
    ended = free_running(Cached(network), Damaged(network, amount=60.0), IDS, GREEDY, 8, (end,))
    assert ended.tokens == plain.tokens[: plain.tokens.index(end) + 1]
    assert len(ended.other_tokens) > len(ended.tokens) == len(ended.differences)


def test_weights_are_cast_and_frequencies_are_not() -> None:
    network, cast = model_of("llama").network, network_in(torch.float16)
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


def test_a_planted_difference_is_one_of_the_logits() -> None:
    network = network_in(torch.float32)
    rows = Cached(network).begin(IDS), Whole(network).begin(IDS)
    assert difference(*rows).kl < 1e-9
