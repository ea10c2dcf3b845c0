"""Floating-point numbers of 8 bits."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import HeadRows, Situation
from policies.declaration.shape import ModelShape
from policies.declaration.steps import TENSORS
from policies.quantisation.groups import check_channels, in_groups
from policies.quantisation.options import FloatOptions
from policies.quantisation.quantisation import Codes, Formats, Quantisation

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")


@dataclass(frozen=True)
class FloatFormat:
    """Casts numbers to a type of 8 bits; what is too large becomes its largest number.

    ``group``: so many channels of a token are scaled to reach that number first, or none are.
    """

    kind: str  # of torch
    group: int | None
    over_tokens: bool = False

    def encode(self, states: "torch.Tensor") -> Codes:
        kind, size = getattr(torch, self.kind), states.shape[-1]
        group, largest = min(self.group or size, size), torch.finfo(kind).max
        grouped = in_groups(states.float(), group)
        scale = torch.ones_like(grouped[..., :1])
        if self.group:
            scale = (grouped.abs().amax(-1, keepdim=True) / largest).to(states.dtype).float()
            scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        cast = (grouped / scale).clamp(-largest, largest).to(kind)

        def decode(codes: "torch.Tensor") -> "torch.Tensor":
            numbers = in_groups(codes, group).to(torch.uint8).view(kind).float() * scale
            return numbers.flatten(-2)[..., :size].to(states.dtype)

        return Codes(cast.view(torch.uint8).flatten(-2)[..., :size].int(), 8, decode)

    def bytes(self, head: HeadRows) -> int:
        scales = math.ceil(head.size / self.group) if self.group else 0
        return head.rows * (head.size + scales * head.number_bytes)


def floats(kind: str, description: str) -> Quantisation:
    """Declares a type of torch, such as ``float8_e4m3fn``."""

    def formats(options: FloatOptions, situation: Situation) -> Formats:
        stored = FloatFormat(kind, options.group if options.scale == "group" else None)
        return dict.fromkeys(TENSORS[options.tensor], stored)

    def check_groups(options: FloatOptions, shape: ModelShape) -> None:
        if options.scale == "group":
            check_channels(options.group, shape.head_size)

    return Quantisation(
        name=kind.replace("float8", "fp8").removesuffix("fn"),
        paper="FP8 formats, arXiv 2209.05433",
        description=description,
        options=FloatOptions,
        formats=formats,
        check_model=check_groups,
        codeword_bits=lambda options: dict.fromkeys(TENSORS[options.tensor], 8),
    )


FLOATS = (
    floats("float8_e4m3fn", "Floating point of 8 bits, 3 of them mantissa, as vLLM’s without scales"),
    floats("float8_e5m2", "Floating point of 8 bits, 2 of them mantissa, as vLLM’s without scales"),
)
