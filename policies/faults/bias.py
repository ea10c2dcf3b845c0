"""Shifts all values in one direction, as a wrong zero point does."""

from typing import TYPE_CHECKING

from pydantic import Field

from policies.faults.fault import Fault, Site
from policies.faults.options import FaultOptions

if TYPE_CHECKING:
    import torch


class BiasOptions(FaultOptions):
    shift: float = Field(1.0, ge=-1e3, le=1e3)  # in spreads of the layer and tensor


def _shifted(site: Site) -> "torch.Tensor":
    assert isinstance(site.options, BiasOptions)
    return (site.states.float() + site.options.shift * site.mean_and_spread[1]).to(site.states.dtype)


BIAS = Fault(
    name="bias",
    paper="Effect of KV Cache Error on Inference Accuracy",
    description="Each value plus a constant, in spreads of its layer",
    corrupt=_shifted,
    options=BiasOptions,
)
