"""Draws numbers that follow from a key, a counter and a place alone, and are the same on every
device.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", 2014), the one of Java's ``SplittableRandom``. Its n-th number is a mix of ``seed + n *
GOLDEN``, so that any of them is computed without those before it. Here each counter has a generator
of its own, whose seed is a number of the generator of the key.

All of it is integer arithmetic that wraps, a sum of two floats and a product with a power of two,
which are exact or rounded in one way on every device. Logarithm and cosine, of which normal numbers
are mostly made, round otherwise on a GPU than on a CPU."""

import hashlib
from functools import lru_cache
from typing import Literal

from policies.declaration.devices import device_kind
from policies.declaration.lazy import torch

Distribution = Literal["uniform", "normal"]
# 2**64 by the golden ratio, odd: its multiples come back after 2**64 numbers.
GOLDEN = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # "variant 13" of David Stafford
LAST_SHIFT = 31
QUANTILES = 2**16


def draw_numbers(
    distribution: Distribution, key: str, counters: "torch.Tensor", size: int
) -> "torch.Tensor":
    """Draws so many numbers for each counter, on its device: float32 on [0, 1), or normal of mean 0
    and spread 1.

    ``counters``: int64 (counters,), not negative. Returns (counters, size). Fewer are the beginning
    of more."""
    device = counters.device
    # A word of 64 bits holds two numbers.
    words = -(-size // 2)
    digest = hashlib.sha256(f"{distribution}/{key}".encode()).digest()
    first = int.from_bytes(digest[:8], "big", signed=True)
    second = int.from_bytes(digest[8:16], "big", signed=True)
    step = _signed(GOLDEN)
    seeds = _mixed(counters * step + first) ^ second
    steps = torch.arange(1, words + 1, device=device) * step
    numbers = torch.empty(len(counters), size, dtype=torch.float32, device=device)
    at_once = max(1, device_kind(device).words_at_once // max(1, words))
    for start in range(0, len(counters), at_once):
        block = slice(start, start + at_once)
        mixed = _mixed(seeds[block, None] + steps)
        # The lower half of a word comes first: all processors that torch is built for store it so.
        halves = mixed.view(torch.int32)[:, :size]
        numbers[block] = _uniform(halves) if distribution == "uniform" else _normal(halves)
    return numbers


def _signed(word: int) -> int:
    """Returns the number that has the same 64 bits in int64, the widest integers that torch
    multiplies."""
    return word - 2**64 if word >= 2**63 else word


def _mixed(words: "torch.Tensor") -> "torch.Tensor":
    """Mixes words of 64 bits in their place, each for itself, so that every bit depends on every
    bit."""
    for shift, factor in MIX:
        words ^= _shifted(words, shift)
        words *= _signed(factor)
    words ^= _shifted(words, LAST_SHIFT)
    return words


def _shifted(words: "torch.Tensor", shift: int) -> "torch.Tensor":
    """Shifts to the right and fills with zeros, where torch fills with the sign."""
    shifted = words >> shift
    shifted &= 2 ** (64 - shift) - 1
    return shifted


def _uniform(halves: "torch.Tensor") -> "torch.Tensor":
    """Makes a number on [0, 1) of the upper 24 bits of each half: as many as float32 has, so that
    none rounds to 1."""
    # The shift fills with the sign, which the mask takes off again.
    return ((halves >> 8) & 0xFFFFFF).float() * 2.0**-24


def _normal(halves: "torch.Tensor") -> "torch.Tensor":
    """Makes a normal number of each half: the sum of the quantiles that its upper and its lower 16
    bits choose.

    One quantile alone would have 65,536 values and end at 4.3. The sum ends at 6.1, has a kurtosis
    of 2.9996, and lies beyond 4 and 4.5 in 0.98 and 0.94 of as many cases as a normal number."""
    table = _quantiles(halves.device)
    upper, lower = (halves >> 16) & 0xFFFF, halves & 0xFFFF
    numbers = table.index_select(0, upper.flatten())
    numbers += table.index_select(0, lower.flatten())
    return numbers.view(halves.shape)


@lru_cache(maxsize=64)  # devices
def _quantiles(device: "torch.device") -> "torch.Tensor":
    """Returns quantiles of the normal distribution of variance 1/2, at the middles of as many equal
    shares."""
    # On the CPU and in float64 whatever the device: it holds a logarithm.
    middles = torch.arange(QUANTILES // 2, dtype=torch.float64) + 0.5
    upper = torch.special.ndtri(middles / QUANTILES + 0.5)
    # The middles of equal shares spread a little less than the distribution does.
    variance = 2 * upper.square().mean()
    upper /= variance.sqrt()
    # One half is the mirror of the other, so that the mean is exactly 0.
    return torch.cat([-upper.flip(0), upper]).float().to(device)
