"""How numbers are stored in fewer bits: integers that share a scale, floating point of 8 bits,
shorter mantissas."""

import math
from dataclasses import dataclass

from policies.declaration.lazy import torch
from policies.declaration.names import PolicyError
from policies.declaration.policy import HeadRows
from policies.quantisation.quantisation import Axis, Codes, Scheme

MANTISSAS = {"float32": 23, "bfloat16": 7, "float16": 10}  # bits, by type


def in_groups(states: "torch.Tensor", group: int) -> "torch.Tensor":
    """Divides the last dimension: shape (..., length) becomes (..., groups, group).

    The last group may have fewer numbers: its last one is repeated, which changes neither its least
    nor its largest."""
    missing = -states.shape[-1] % group
    if missing:
        last = states[..., -1:]
        padding = last.expand(*states.shape[:-1], missing)
        states = torch.cat([states, padding], dim=-1)
    grouped: torch.Tensor = states.unflatten(-1, (-1, group))
    return grouped


def check_channels(group: int, head_size: int) -> None:
    """Raises :class:`PolicyError` for groups of channels that leave fewer for the last one of a
    head, which quanto refuses too. A group of more channels than a head has takes all of them."""
    if group < head_size and head_size % group:
        divisors = [count for count in range(1, head_size + 1) if head_size % count == 0]
        below = max(count for count in divisors if count < group)
        above = min(count for count in divisors if count > group)
        raise PolicyError(
            f"groups of {group} do not divide the {head_size} channels of a head: say "
            f"group={below} or group={above}"
        )


@dataclass(frozen=True)
class IntegerFormat:
    """Encodes each group in integers of so many bits.

    Asymmetric: in equal steps from the least number of the group, the zero point, to the largest,
    as in KIVI. Symmetric: from minus the largest magnitude to plus, without a zero point. Signed:
    the same, with one step more on the side of the number of the largest magnitude, as in
    llama.cpp's ``q4_0``. Scale and zero point have the type of the model. The arithmetic between is
    in float32, unless ``in_own_type``, as quanto computes."""

    bits: int
    axis: Axis
    group: int
    scheme: Scheme = "asymmetric"
    in_own_type: bool = False

    @property
    def over_tokens(self) -> bool:
        return self.axis == "channel"

    def encode(self, states: "torch.Tensor") -> Codes:
        """Encodes rows of shape (num_kv_heads, rows, head_dim); groups are counted from the first
        row, or channel."""
        # (heads, rows, head_dim), or (heads, head_dim, rows) where a group goes along the tokens.
        turned = self._turned(states)
        length = turned.shape[-1]
        group = min(self.group, length)
        kind = states.dtype if self.in_own_type else torch.float32
        grouped = in_groups(turned, group).to(kind)
        lowest, scale = self._zero_and_scale(grouped)
        # As they are stored, in the type of the model.
        lowest = lowest.to(states.dtype).to(kind)
        scale = scale.to(states.dtype).to(kind)
        # A group of equal numbers has no steps: any divisor gives it code 0.
        step = torch.where(scale != 0, scale, torch.ones_like(scale))
        # Codewords are 0 and more.
        offset = 0 if self.scheme == "asymmetric" else 1 << (self.bits - 1)
        least = {"asymmetric": 0, "symmetric": -self._steps, "signed": -offset}[self.scheme]
        # In place, as it is done for all rows of a context at once.
        steps = (grouped - lowest).div_(step).round_()
        numbers = steps.clamp_(least, self._steps).int().add_(offset)

        def back(parts: "torch.Tensor") -> "torch.Tensor":
            flat = parts.flatten(-2)[..., :length]
            return self._turned(flat).contiguous()

        def decode(codes: "torch.Tensor") -> "torch.Tensor":
            # The scales stay those of the encoding, whatever a fault has made of the codes.
            steps_of_groups = in_groups(self._turned(codes), group) - offset
            decoded = steps_of_groups.to(kind).mul_(scale).add_(lowest)
            return back(decoded.to(states.dtype))

        return Codes(back(numbers), self.bits, decode)

    def _turned(self, states: "torch.Tensor") -> "torch.Tensor":
        """Puts what a group goes along, tokens or channels, last; and back again."""
        return states.transpose(1, 2) if self.over_tokens else states

    @property
    def _steps(self) -> int:
        """Counts the steps from the zero point to the largest code."""
        bits = self.bits if self.scheme == "asymmetric" else self.bits - 1
        return (1 << bits) - 1

    def _zero_and_scale(self, grouped: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
        """Returns the zero point and the scale of each group, (..., groups, 1).

        ``grouped``: its numbers, (..., groups, group).
        """
        lowest = grouped.amin(-1, keepdim=True)
        highest = grouped.amax(-1, keepdim=True)
        if self.scheme == "asymmetric":
            return lowest, (highest - lowest) / self._steps
        zero = torch.zeros_like(lowest)
        if self.scheme == "symmetric":
            return zero, torch.maximum(-lowest, highest) / self._steps
        largest = torch.where(-lowest > highest, lowest, highest)
        # Of the other sign, so that this number has the lowest code: there is one more of them
        # below 0.
        return zero, -largest / (self._steps + 1)

    def code_bytes(self, head: HeadRows) -> int:
        """Counts the bytes of the codewords, packed without gaps."""
        return math.ceil(head.rows * head.size * self.bits / 8)

    def bytes(self, head: HeadRows) -> int:
        across, along = head.rows, head.size
        if self.over_tokens:
            across, along = along, across
        groups = across * math.ceil(along / self.group)
        numbers_of_group = 2 if self.scheme == "asymmetric" else 1
        return self.code_bytes(head) + groups * numbers_of_group * head.exact_bytes


@dataclass(frozen=True)
class FloatFormat:
    """Casts numbers to a type of 8 bits; what is too large becomes its largest number.

    ``group``: so many channels of a token are scaled to reach that number first, or none are.
    """

    kind: str  # of torch
    group: int | None
    over_tokens: bool = False

    def encode(self, states: "torch.Tensor") -> Codes:
        """Encodes rows of shape (num_kv_heads, rows, head_dim)."""
        kind = getattr(torch, self.kind)
        size = states.shape[-1]
        group = min(self.group or size, size)
        largest = torch.finfo(kind).max
        grouped = in_groups(states.float(), group)
        scale = torch.ones_like(grouped[..., :1])
        if self.group:
            scale = grouped.abs().amax(-1, keepdim=True) / largest
            scale = scale.to(states.dtype).float()
            scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        # torch makes infinity of what e5m2 cannot hold.
        cast = (grouped / scale).clamp(-largest, largest).to(kind)

        def decode(codes: "torch.Tensor") -> "torch.Tensor":
            stored = in_groups(codes, group).to(torch.uint8).view(kind)
            numbers = stored.float() * scale
            return numbers.flatten(-2)[..., :size].to(states.dtype)

        codewords = cast.view(torch.uint8).flatten(-2)[..., :size]
        return Codes(codewords.int(), 8, decode)

    def bytes(self, head: HeadRows) -> int:
        scales = math.ceil(head.size / self.group) if self.group else 0
        return head.rows * (head.size + scales * head.exact_bytes)


def check_bits(masked: int, dtype: str) -> None:
    """Raises :class:`PolicyError` for more bits than a mantissa of the model's type has."""
    if masked > MANTISSAS[dtype]:
        raise PolicyError(
            f"a mantissa of {dtype} has {MANTISSAS[dtype]} bits, and {masked} are to be masked"
        )


@dataclass(frozen=True)
class MaskedFormat:
    """Cuts off the lowest bits of every number, towards zero."""

    masked: int
    over_tokens: bool = False

    def encode(self, states: "torch.Tensor") -> Codes:
        """Encodes rows of any shape; raises :class:`PolicyError` for more bits than a mantissa of
        their type has."""
        dtype = states.dtype
        check_bits(self.masked, str(dtype).removeprefix("torch."))
        kind = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        # Floats are sign and magnitude: without its low bits a number is nearer to 0, on either
        # side.
        numbers = states.contiguous().view(kind) >> self.masked

        def decode(codes: "torch.Tensor") -> "torch.Tensor":
            return (codes.to(kind) << self.masked).view(dtype)

        return Codes(numbers.int(), 8 * dtype.itemsize - self.masked, decode)

    def bytes(self, head: HeadRows) -> int:
        # More than an exact number has, as of float32 with few bits masked, is no form to keep.
        bits_of_number = min(8 * head.number_bytes - self.masked, 8 * head.exact_bytes)
        return math.ceil(head.rows * head.size * bits_of_number / 8)
