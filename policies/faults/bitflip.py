"""Flips bits in memory, in the model's own numbers."""

import re
from typing import TYPE_CHECKING, Literal

from pydantic import field_validator

from policies.declaration.errors import PolicyError
from policies.declaration.lazy import LazyModule
from policies.faults.fault import MORE_ROBUST, Fault, Site
from policies.faults.options import FaultOptions, Parts, chosen

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

# By the model's dtype: bits of the mantissa, which are the lowest, and of the exponent; the sign is the highest.
BITS = {"float32": (23, 8), "bfloat16": (7, 8), "float16": (10, 5)}
FIELDS = ("any", "exponent", "mantissa", "sign")


class BitflipOptions(FaultOptions):
    unit: Literal["bit", "row", "value", "token"] = "bit"  # of any other unit, one bit of each value flips
    bits: Parts = ("any",)  # any, exponent, mantissa, sign, or numbers and ranges such as 0-7; 0 is the least

    @field_validator("bits")
    @classmethod
    def _known(cls, bits: tuple[str, ...]) -> tuple[str, ...]:
        for part in bits:
            if part not in FIELDS and not re.fullmatch(r"\d{1,2}(-\d{1,2})?", part):
                raise ValueError(f"say {', '.join(FIELDS)}, or numbers as 30 or [0-6,15]")
        return bits

    def bits_of(self, dtype: str) -> tuple[int, ...]:
        """Lists the bits of a number, the least as 0; raises :class:`PolicyError` for one that the dtype has not."""
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
        return chosen("bit", [ranges.get(part, part) for part in self.bits], sign + 1, dtype)


def _may_overflow(options: FaultOptions) -> bool:
    """Tells whether a flip can make a number infinite or NaN, as it can in the exponent alone."""
    assert isinstance(options, BitflipOptions)
    return not set(options.bits) <= {"mantissa", "sign"}


def _check_dtype(options: FaultOptions, dtype: str) -> None:
    assert isinstance(options, BitflipOptions)
    options.bits_of(dtype)


def _flipped(site: Site) -> "torch.Tensor":
    assert isinstance(site.options, BitflipOptions)
    dtype = site.states.dtype
    bits = site.options.bits_of(str(dtype).removeprefix("torch."))
    numbers = site.states.contiguous().view(torch.int32 if dtype.itemsize == 4 else torch.int16)
    size = numbers.shape[-1]
    if site.options.unit == "bit":
        for bit in bits:
            hit = site.draw("uniform", f"bit {bit} of {site.tensor}", size) < site.rates.float()
            numbers = numbers ^ (hit.to(numbers.dtype) << bit)
    else:
        which = (site.draw("uniform", f"which bit of {site.tensor}", size) * len(bits)).long()
        numbers = numbers ^ (torch.ones_like(numbers) << torch.tensor(bits, device=numbers.device)[which])
    return numbers.to(torch.int32 if dtype.itemsize == 4 else torch.int16).view(dtype)


BITFLIP = Fault(
    name="bitflip",
    paper=MORE_ROBUST,
    description="Bits that flip in the model's numbers; may make NaN",
    corrupt=_flipped,
    options=BitflipOptions,
    may_overflow=_may_overflow,
    check_dtype=_check_dtype,
    default_rates="0,0.000001,0.00001,0.0001,0.001,0.01",
)
