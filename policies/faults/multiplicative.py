"""Changes every value by a share of itself, as a coarse code does: it is multiplied by 1 + an error that is drawn."""

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from policies.faults.fault import EFFECT_OF_ERROR, Fault, Site
from policies.faults.options import FaultOptions

if TYPE_CHECKING:
    import torch

EVERYWHERE = "0,1"  # the text damages all values


class UniformOptions(FaultOptions):
    low: float = Field(-1.0, ge=-1e3, le=1e3)  # the least error, as a share of the value
    high: float = Field(1.0, ge=-1e3, le=1e3)  # the largest one

    @model_validator(mode="after")
    def _in_order(self) -> "UniformOptions":
        if self.low > self.high:
            raise ValueError(f"low={self.low:g} is above high={self.high:g}")
        return self


class NormalOptions(FaultOptions):
    mean: float = Field(0.0, ge=-1e3, le=1e3)  # of the error, as a share of the value
    std: float = Field(0.5, ge=0, le=1e3)


def _uniform(site: Site) -> "torch.Tensor":
    assert isinstance(site.options, UniformOptions)
    low, high = site.options.low, site.options.high
    return site.states * (1 + low + (high - low) * site.draw_like("uniform"))


def _normal(site: Site) -> "torch.Tensor":
    assert isinstance(site.options, NormalOptions)
    return site.states * (1 + site.options.mean + site.options.std * site.draw_like("normal"))


MULTIPLICATIVE_UNIFORM = Fault(
    name="multiplicative_uniform",
    paper=EFFECT_OF_ERROR,
    description="Each value times 1 + an error, uniform in two bounds",
    corrupt=_uniform,
    options=UniformOptions,
    default_rates=EVERYWHERE,
)
MULTIPLICATIVE_NORMAL = Fault(
    name="multiplicative_normal",
    paper=EFFECT_OF_ERROR,
    description="Each value times 1 + an error of a normal distribution",
    corrupt=_normal,
    options=NormalOptions,
    default_rates=EVERYWHERE,
)
