"""The model's own numbers with the low bits of their mantissas set to zero."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.declaration.errors import PolicyError
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import BITS
from policies.declaration.policy import HeadRows, Situation
from policies.declaration.steps import TENSORS
from policies.quantisation.options import MantissaOptions
from policies.quantisation.quantisation import Codes, Formats, Quantisation

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")


MANTISSAS = {"float32": 23, "bfloat16": 7, "float16": 10}  # bits, by type


def check_bits(masked: int, dtype: str) -> None:
    """Raises :class:`PolicyError` for more bits than a mantissa of the model's type has."""
    if masked > MANTISSAS[dtype]:
        raise PolicyError(f"a mantissa of {dtype} has {MANTISSAS[dtype]} bits, and {masked} are to be masked")


@dataclass(frozen=True)
class MaskedFormat:
    """Cuts off the lowest bits of every number, towards zero."""

    masked: int
    over_tokens: bool = False

    def encode(self, states: "torch.Tensor") -> Codes:
        """Raises :class:`PolicyError` for more bits than a mantissa of the model's type has."""
        check_bits(self.masked, str(states.dtype).removeprefix("torch."))
        kind = {2: torch.int16, 4: torch.int32}[states.dtype.itemsize]
        numbers = states.contiguous().view(kind) >> self.masked

        def decode(codes: "torch.Tensor") -> "torch.Tensor":
            return (codes.to(kind) << self.masked).view(states.dtype)

        return Codes(numbers.int(), 8 * states.dtype.itemsize - self.masked, decode)

    def bytes(self, head: HeadRows) -> int:
        return math.ceil(head.rows * head.size * (8 * head.number_bytes - self.masked) / 8)


def _formats(options: MantissaOptions, situation: Situation) -> Formats:
    masked = int(situation.level.value) if options.bits is None else options.bits
    return dict.fromkeys(TENSORS[options.tensor], MaskedFormat(masked))


MANTISSA = Quantisation(
    name="mantissa",
    paper="-",
    description="The low bits of every mantissa set to zero",
    options=MantissaOptions,
    formats=_formats,
    check_model=lambda options, shape: check_bits(options.bits or 0, shape.dtype),
    kinds=lambda options: (BITS.name,) if options.bits is None else (),
)
