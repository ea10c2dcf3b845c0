"""Treats rows around a format: they are turned first, or channels that stand out are left as they
are."""

from dataclasses import dataclass, replace
from functools import lru_cache

from scipy.linalg import hadamard

from policies.declaration.lazy import torch
from policies.declaration.names import PolicyError
from policies.declaration.policy import HeadRows
from policies.quantisation.quantisation import Codes, Format

INDEX_BYTES = 2  # that say which channel is left as it is


def largest_power(size: int) -> int:
    """Returns the largest power of 2 that divides a size.

    >>> largest_power(64), largest_power(96), largest_power(80)
    (64, 32, 16)
    """
    # The lowest bit that is set, in two's complement.
    return size & -size


@lru_cache(maxsize=8)
def _hadamard_matrix(size: int, device: str) -> "torch.Tensor":
    """Returns a symmetric matrix whose square is 1, float32 (size, size)."""
    signs = torch.from_numpy(hadamard(size)).to(device, torch.float32)
    matrix: torch.Tensor = signs / size**0.5
    return matrix


def turn(states: "torch.Tensor") -> "torch.Tensor":
    """Turns the channels of rows, (..., head_dim), in blocks of the largest power of 2 that divides
    them; done twice, they are what they were. The products of rows that are both turned are those
    of the rows."""
    block = largest_power(states.shape[-1])
    matrix = _hadamard_matrix(block, str(states.device))
    blocks = states.float().unflatten(-1, (-1, block)) @ matrix
    turned: torch.Tensor = blocks.flatten(-2).to(states.dtype)
    return turned


@dataclass(frozen=True)
class RotatedFormat:
    """Turns rows before they are encoded, and back when they are read."""

    inner: Format

    @property
    def over_tokens(self) -> bool:
        return self.inner.over_tokens

    def encode(self, states: "torch.Tensor") -> Codes:
        """Encodes rows of shape (num_kv_heads, rows, head_dim)."""
        codes = self.inner.encode(turn(states))
        return replace(codes, decode=lambda numbers: turn(codes.decode(numbers)))

    def bytes(self, head: HeadRows) -> int:
        return self.inner.bytes(head)


@dataclass(frozen=True)
class FormatWithOutliers:
    """Leaves some channels of each head as they are: those whose largest magnitude among the rows
    that are encoded together is largest. The others are encoded as if these were 0."""

    inner: Format
    channels: int  # of a head

    @property
    def over_tokens(self) -> bool:
        return self.inner.over_tokens

    def encode(self, states: "torch.Tensor") -> Codes:
        """Encodes rows of shape (num_kv_heads, rows, head_dim)."""
        chosen = states.abs().amax(1, keepdim=True).topk(self.channels, dim=-1).indices
        places = chosen.expand(-1, states.shape[1], -1)
        exact = states.gather(-1, places)
        # As zeros they widen the range of no group that has both signs.
        codes = self.inner.encode(states.scatter(-1, places, 0))

        def decode(numbers: "torch.Tensor") -> "torch.Tensor":
            return codes.decode(numbers).scatter(-1, places, exact)

        return replace(codes, decode=decode)

    def bytes(self, head: HeadRows) -> int:
        """Counts the codes of all channels, as blocks keep their places, and the exact ones beside
        them with their numbers."""
        exact = self.channels * (head.rows * head.exact_bytes + INDEX_BYTES)
        return self.inner.bytes(head) + exact


def check_outliers(channels: int, head_size: int) -> None:
    """Raises :class:`PolicyError` where all channels of a head would be left as they are."""
    if channels >= head_size:
        raise PolicyError(
            f"outliers={channels}: a head has {head_size} channels, and some have to be quantised"
        )
