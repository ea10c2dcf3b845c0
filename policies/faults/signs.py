"""Turns the signs of values, or makes errors as large that change no sign."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from policies.declaration.lazy import LazyModule
from policies.faults.fault import EFFECT_OF_ERROR, Fault, Site
from policies.faults.options import FaultOptions

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

UP_TO_A_FIFTH = "0,0.01,0.02,0.05,0.1,0.2"


class SignOptions(FaultOptions):
    unit: Literal["row", "value", "token"] = "value"


class SameSignOptions(FaultOptions):
    unit: Literal["value"] = "value"  # the rate is that of the sign flips whose error it has
    rate: float | None = Field(None, ge=0, lt=0.25)


def _same_sign(site: Site) -> "torch.Tensor":
    """Multiplies each value x by 1 + 2√s or 1 − 2√s, as it is drawn, for sign flips of a share s.

    A flip is an error of −2x, so that flips of a share s come to a root mean square of 2√s of the values. The same
    spread evenly over all values, and centred, changes no sign while 2√s < 1.
    """
    up = site.draw_like("uniform") < 0.5
    error = 2 * site.rates.sqrt()
    return site.states * torch.where(up, 1 + error, 1 - error).to(site.states.dtype)


SIGN_FLIP = Fault(
    name="sign_flip",
    paper=EFFECT_OF_ERROR,
    description="Values of the wrong sign",
    corrupt=lambda site: -site.states,
    options=SignOptions,
    default_rates=UP_TO_A_FIFTH,
)
SAME_SIGN = Fault(
    name="same_sign",
    paper=EFFECT_OF_ERROR,
    description="As much error as sign flips, but no sign changes",
    corrupt=_same_sign,
    options=SameSignOptions,
    hits_all=True,
    rates_below=0.25,
    default_rates=UP_TO_A_FIFTH,
)
