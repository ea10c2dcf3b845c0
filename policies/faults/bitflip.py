"""Flips bits in memory: in the model's own numbers, or in the codewords of a quantisation before
it.

Of quantised rows an engine holds codewords, so that is where memory fails:
``int4+bitflip(on=codeword,rate=0.001)``. A flip moves a number by a power of two of its group's
steps, and can never make NaN of an integer. Scales and zero points stay as they are: one flip in
them damages a whole group, and being few they can be protected."""

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import field_validator, model_validator

from policies.declaration.lazy import torch
from policies.declaration.names import PolicyError
from policies.declaration.shape import ModelShape
from policies.declaration.steps import TENSORS, States
from policies.faults.fault import MORE_ROBUST, Fault, Site
from policies.faults.options import WRITING, FaultOptions
from policies.treatments.parts import Parts, chosen

# By the model's dtype: bits of the mantissa, which are the lowest, and of the exponent; the sign is
# the highest.
BITS = {"float32": (23, 8), "bfloat16": (7, 8), "float16": (10, 5)}
FIELDS = ("any", "exponent", "mantissa", "sign")


class BitflipOptions(FaultOptions):
    unit: Literal["bit", "row", "value", "token"] = (
        "bit"  # of any other unit, one bit of each value flips
    )
    # Any, exponent, mantissa, sign, or numbers and ranges such as 0-7; 0 is the least.
    bits: Parts = ("any",)
    on: Literal["value", "codeword"] = "value"  # codeword: of the quantisation right before it

    @model_validator(mode="after")
    def _fits_codewords(self) -> "BitflipOptions":
        if not self.on_codewords:
            return self
        if self.phase in WRITING:
            raise ValueError(
                f"on=codeword: nothing is quantised when rows are written, so not "
                f"phase={self.phase}"
            )
        for part in set(self.bits) & set(FIELDS[1:]):
            raise ValueError(f"bits={part}: codewords have no {part}: say any, or numbers")
        return self

    @property
    def on_codewords(self) -> bool:
        return self.on == "codeword"

    @field_validator("bits")
    @classmethod
    def _check_bits(cls, bits: tuple[str, ...]) -> tuple[str, ...]:
        for part in bits:
            if part not in FIELDS and not re.fullmatch(r"\d{1,2}(-\d{1,2})?", part):
                raise ValueError(f"say {', '.join(FIELDS)}, or numbers as 30 or [0-6,15]")
        return bits

    def numbers_hit(self, rate: float, dtype: str) -> float:
        """Returns the share of the numbers in which some bit flips: of 32 bits 1 % hits 27 %. Raises
        :class:`PolicyError` for bits that the dtype has not."""
        if self.unit != "bit":
            return rate
        stays = (1 - rate) ** len(self.flippable_bits(dtype))
        return 1 - stays

    def flippable_bits(self, dtype: str) -> tuple[int, ...]:
        """Lists the bits of a number, the least as 0; raises :class:`PolicyError` for one that the
        dtype has not."""
        if dtype not in BITS:
            raise PolicyError(f"bits of {dtype}: flips are for {', '.join(BITS)}")
        mantissa, exponent = BITS[dtype]
        sign = mantissa + exponent
        ranges = {
            "any": f"0-{sign}",
            "mantissa": f"0-{mantissa - 1}",
            "exponent": f"{mantissa}-{sign - 1}",
            "sign": f"{sign}",
        }
        parts = [ranges.get(part, part) for part in self.bits]
        return chosen("bit", parts, sign + 1, dtype)

    def bits_of_codewords(self, count: int) -> tuple[int, ...]:
        """Lists the bits of a codeword of so many; raises :class:`PolicyError` for one that it has
        not."""
        parts = ["all" if part == "any" else part for part in self.bits]
        return chosen("bit", parts, count, "a codeword")

    @property
    def may_overflow(self) -> bool:
        """Tells whether a flip can make a number infinite or NaN, as it can in the exponent
        alone."""
        return not set(self.bits) <= {"mantissa", "sign"}

    def check_model(self, shape: ModelShape) -> None:
        """Raises :class:`PolicyError` in one line for layers, heads or bits that a model has
        not."""
        super().check_model(shape)
        if not self.on_codewords:
            self.flippable_bits(shape.dtype)

    def check_codewords(self, bits: Mapping[States, int]) -> None:
        """Raises :class:`PolicyError` for a tensor without codewords, and for bits that they have
        not. ``bits``: of a codeword, by tensor."""
        for tensor in TENSORS[self.tensor]:
            if tensor not in bits:
                other = "V" if tensor == "keys" else "K"
                raise PolicyError(f"{tensor} are not quantised: say tensor={other}")
            self.bits_of_codewords(bits[tensor])


def _flipped(site: Site) -> "torch.Tensor":
    dtype, unit = site.states.dtype, site.options.unit
    if site.codeword_bits is not None:
        bits = site.options.bits_of_codewords(site.codeword_bits)
    else:
        bits = site.options.flippable_bits(str(dtype).removeprefix("torch."))
    # Codewords are int32 as well.
    integers = torch.int32 if dtype.itemsize == 4 else torch.int16
    numbers = site.states.contiguous().view(integers)
    size = numbers.shape[-1]
    if unit == "bit":
        for bit in bits:
            # Each bit has a draw of its own: a number may lose several.
            drawn = site.draw("uniform", f"bit {bit} of {site.tensor}", size)
            hit = drawn < site.rates.float()
            numbers = numbers ^ (hit.to(numbers.dtype) << bit)
    else:
        drawn = site.draw("uniform", f"which bit of {site.tensor}", size)
        # Draws are below 1, so that no index is the number of bits.
        which = (drawn * len(bits)).long()
        places = torch.tensor(bits, device=numbers.device)[which]
        numbers = numbers ^ (torch.ones_like(numbers) << places)
    # Places are int64 and make the shifted numbers so: back to as many bytes as a number has.
    return numbers.to(integers).view(dtype)


BITFLIP = Fault(
    name="bitflip",
    paper=MORE_ROBUST,
    description="Bits that flip, of numbers or of codewords; may make NaN",
    corrupt=_flipped,
    options=BitflipOptions,
    default_rates="0,0.000001,0.00001,0.0001,0.001,0.01",
)
