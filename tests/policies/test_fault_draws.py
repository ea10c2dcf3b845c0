"""What a fault draws: the numbers of a place against a generator in plain Python, and whether they
look random."""

import hashlib
import math
from collections.abc import Iterator
from itertools import islice, pairwise
from statistics import NormalDist
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest, norm
from torch.utils._python_dispatch import TorchDispatchMode

from policies.declaration.devices import DEVICE_KINDS
from policies.faults import counter_based
from policies.faults.counter_based import QUANTILES, Distribution, draw_numbers
from policies.faults.fault import HEADS, draw
from tests.support.models.devices import work_as

WORD = 2**64
KEY = "0/example/keys"
# The least p that no test may fall below; all draws are fixed, so that none fails by chance.
RARE = 1e-4


# --- each number against plain Python


def splitmix64(seed: int) -> Iterator[int]:
    """Yields the numbers of SplitMix64, as its authors' C code computes them."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) % WORD
        word = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % WORD
        word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
        yield word ^ word >> 31


def test_the_plain_generator_is_the_published_one() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert list(islice(splitmix64(1234567), 4)) == published


def plain_halves(distribution: str, key: str, counter: int, count: int) -> list[int]:
    """Returns numbers of 32 bits: both halves of each number of the counter's generator."""
    digest = hashlib.sha256(f"{distribution}/{key}".encode()).digest()
    first, second = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")
    before = (first + (counter - 1) * 0x9E3779B97F4A7C15) % WORD
    halves: list[int] = []
    for word in islice(splitmix64(next(splitmix64(before)) ^ second), (count + 1) // 2):
        halves += [word % 2**32, word >> 32]
    return halves[:count]


def plain_quantiles() -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    normal = NormalDist()
    upper = [normal.inv_cdf(0.5 + (number + 0.5) / QUANTILES) for number in range(QUANTILES // 2)]
    spread = math.sqrt(math.fsum(value * value for value in upper) / len(upper))
    scaled = [value / spread / math.sqrt(2) for value in upper]
    return np.array([*(-value for value in reversed(scaled)), *scaled], dtype=np.float32)


@pytest.mark.parametrize("size", [1, 2, 5, 128])
def test_numbers_are_those_of_plain_python(size: int) -> None:
    counters, quantiles = [0, 1, 899 * HEADS + 3, 2**31 - 1, 2**40], plain_quantiles()
    for key in (KEY, "7/another/values"):
        uniform = draw_numbers("uniform", key, torch.tensor(counters), size).tolist()
        normal = draw_numbers("normal", key, torch.tensor(counters), size).numpy()
        for row, counter in enumerate(counters):
            assert uniform[row] == [
                half // 256 / 2**24 for half in plain_halves("uniform", key, counter, size)
            ]
            for column, half in enumerate(plain_halves("normal", key, counter, size)):
                assert normal[row, column] == quantiles[half >> 16] + quantiles[half % 2**16]


def test_numbers_never_drift() -> None:
    """Whoever changes these changes every fault: stored answers are then no longer those of their
    names."""
    counters = torch.tensor([0, HEADS + 2])
    uniform, normal = (draw_numbers(kind, KEY, counters, 3) for kind in ("uniform", "normal"))
    assert (uniform * 2**24).tolist() == [
        [14546967, 15468259, 11052895],
        [4414937, 13116031, 6723896],
    ]
    assert normal.tolist() == [
        [-0.10000953078269958, -0.33440494537353516, 0.23719066381454468],
        [-0.822969913482666, -2.470684766769409, -0.559929609298706],
    ]


# --- what the numbers of a place depend on


@pytest.mark.parametrize("words", [1, 3, DEVICE_KINDS["cuda"].words_at_once])
def test_numbers_do_not_depend_on_how_many_are_drawn_at_once(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = torch.arange(50) * 7
    kinds: tuple[Distribution, ...] = get_args(Distribution)
    expected = {kind: draw_numbers(kind, KEY, counters, 9) for kind in kinds}
    work_as(monkeypatch, words_at_once=words)
    for kind, numbers in expected.items():
        assert torch.equal(draw_numbers(kind, KEY, counters, 9), numbers)
        assert torch.equal(draw_numbers(kind, KEY, counters[20:23], 4), numbers[20:23, :4])


class Sizes(TorchDispatchMode):
    """Notes how many bytes each tensor has that an operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensor = func(*args, **(kwargs or {}))
        self.bytes.append(tensor.nbytes)
        return tensor


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_all_but_the_numbers_are_small(
    distribution: Distribution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer of a long context has 33 million numbers: words of 64 bits for all of them would be
    134 MB each."""
    work_as(monkeypatch, words_at_once=128)
    draw_numbers(distribution, KEY, torch.arange(1), 1)  # makes the quantiles, which stay
    with Sizes() as sizes:
        numbers = draw_numbers(distribution, KEY, torch.arange(200), 64)
    largest = sorted(sizes.bytes)
    assert largest[-1] == numbers.nbytes == 200 * 64 * 4
    assert largest[-2] <= 200 * 8  # a seed for each counter; a block has 128 words of 8 bytes


@pytest.mark.parametrize("channels", [(), (6,)])
def test_a_place_has_the_same_numbers_alone_in_a_batch_and_behind_a_press(
    channels: tuple[int, ...],
) -> None:
    """A batch draws once for each token, and few rows draw for themselves: both are the same
    numbers."""
    heads, end = 3, 40
    full = draw("normal", KEY, torch.arange(end).expand(1, heads, -1), end, *channels)
    kept = torch.stack(
        [
            torch.randperm(end, generator=torch.Generator().manual_seed(head))[:9]
            for head in range(heads)
        ]
    )
    shifted = torch.arange(end).roll(5).expand(heads, -1)
    batch = draw(
        "normal", KEY, torch.stack([shifted, full.new_zeros(heads, end).long()]), end, *channels
    )
    alone = draw("normal", KEY, kept[None], end, *channels)
    for head in range(heads):
        assert torch.equal(alone[0, head], full[0, head, kept[head]])
        assert torch.equal(batch[0, head], full[0, head].roll(5, 0))
        assert torch.equal(batch[1, head], full[0, head, :1].expand_as(batch[1, head]))
    assert len(full.flatten().unique()) == full.numel()  # and no place has those of another


def test_the_place_of_an_absent_row_is_no_error() -> None:
    positions = torch.tensor([[[-3, -1, 0, 1]]]).expand(3, 1, -1)
    assert torch.equal(
        draw("uniform", KEY, positions, 2)[0], draw("uniform", KEY, positions[:1], 9)[0]
    )


# --- do they look random


def numbers_in_a_layer(distribution: Distribution, key: str = KEY) -> torch.Tensor:
    """Draws numbers as for 2,000 tokens, 4 heads of 64."""
    return draw(distribution, key, torch.arange(2000).expand(4, -1), 2000, 64)


def neighbours(distribution: Distribution) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    numbers = numbers_in_a_layer(distribution)
    pairs = {
        "channels": (numbers[..., 1:], numbers[..., :-1]),
        "words": (numbers[..., 2:], numbers[..., :-2]),
        "tokens": (numbers[:, 1:], numbers[:, :-1]),
        "heads": (numbers[1:], numbers[:-1]),
        "keys": (numbers, numbers_in_a_layer(distribution, "1/example/keys")),
    }
    return {
        name: (left.flatten().double(), right.flatten().double())
        for name, (left, right) in pairs.items()
    }


def correlation_p(left: torch.Tensor, right: torch.Tensor) -> float:
    """Returns the p of a correlation of numbers that are independent."""
    together = torch.corrcoef(torch.stack([left, right]))[0, 1]
    return float(2 * norm.sf(abs(together) * math.sqrt(len(left))))


def joint_p(left: torch.Tensor, right: torch.Tensor) -> float:
    """Returns the p of a chi-square of pairs of uniform numbers in 16 by 16 cells."""
    cells = (left * 16).long() * 16 + (right * 16).long()
    return float(chisquare(torch.bincount(cells, minlength=256).numpy()).pvalue)


def bytes_p(halves: torch.Tensor) -> float:
    """Returns the least p of a chi-square of the three bytes of uniform numbers."""
    whole = (halves.flatten().double() * 2**24).long()
    counts = [torch.bincount(whole >> shift & 0xFF, minlength=256).numpy() for shift in (0, 8, 16)]
    return min(float(chisquare(count).pvalue) for count in counts)


def test_uniform_numbers_look_random() -> None:
    numbers = numbers_in_a_layer("uniform").flatten()
    assert 0 <= float(numbers.min()) < 1e-4
    assert 1 - 1e-4 < float(numbers.max()) < 1
    assert bytes_p(numbers) > RARE
    assert kstest(numbers.numpy(), "uniform").pvalue > RARE


def test_normal_numbers_look_normal() -> None:
    numbers = numbers_in_a_layer("normal").flatten().double()
    count = len(numbers)
    assert kstest(numbers.numpy(), "norm").pvalue > RARE
    assert abs(float(numbers.mean())) < 4 / math.sqrt(count)
    assert abs(float(numbers.square().mean()) - 1) < 4 * math.sqrt(2 / count)
    # 96 is the variance of a fourth power.
    assert abs(float(numbers.pow(4).mean()) - 3) < 4 * math.sqrt(96 / count)
    # The largest of 512,000 normal numbers is 4.76 in the middle, and 4.4 to 5.6 in all but 1 %.
    assert 4.4 < float(numbers.max()) < 5.6
    assert -5.6 < float(numbers.min()) < -4.4


@pytest.mark.parametrize("name", ["channels", "words", "tokens", "heads", "keys"])
def test_neighbours_are_independent(name: str) -> None:
    left, right = neighbours("uniform")[name]
    assert correlation_p(left, right) > RARE
    assert joint_p(left, right) > RARE
    left, right = neighbours("normal")[name]
    assert correlation_p(left, right) > RARE
    assert correlation_p(left.square(), right.square()) > RARE
    assert kstest(((left + right) / math.sqrt(2)).numpy(), "norm").pvalue > RARE


def test_a_generator_that_mixes_too_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the first of its products, numbers of one bit's distance are still alike."""
    monkeypatch.setattr(counter_based, "MIX", counter_based.MIX[:0])
    least = [min(correlation_p(*pair), joint_p(*pair)) for pair in neighbours("uniform").values()]
    assert min(least) < RARE**2


def test_keys_that_differ_in_one_letter_have_unlike_numbers() -> None:
    """Of two generators half of the bits differ."""
    keys = [f"0/example/{number}" for number in range(200)]
    words = [(draw_numbers("uniform", key, torch.arange(64), 2) * 2**24).int() for key in keys]
    unlike = [
        bin(int(bits)).count("1")
        for one, other in pairwise(words)
        for bits in (one ^ other).flatten()
    ]
    assert abs(np.mean(unlike) - 12) < 4 * math.sqrt(24 / 4 / len(unlike))
