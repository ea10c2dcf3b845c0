"""Puts noise into rows, instead of what was written."""

from typing import TYPE_CHECKING

from pydantic import Field

from policies.faults.fault import MORE_ROBUST, Fault, Site
from policies.faults.options import FaultOptions

if TYPE_CHECKING:
    import torch


class GaussianOptions(FaultOptions):
    std: float = Field(1.0, ge=0, le=1e6)  # the spread of the noise


def _gaussian(site: Site) -> "torch.Tensor":
    assert isinstance(site.options, GaussianOptions)
    return site.draw_like("normal") * site.options.std


def _matched(site: Site) -> "torch.Tensor":
    """Takes mean and spread over all rows of the layer and tensor: the noise looks like the layer and says nothing."""
    mean, spread = site.mean_and_spread
    noise = site.draw_like("normal").float() * spread + mean
    return noise.to(site.states.dtype)


GAUSSIAN = Fault(
    name="gaussian",
    paper=MORE_ROBUST,
    description="Gaussian noise of a given spread instead of the rows",
    corrupt=_gaussian,
    options=GaussianOptions,
)
GAUSSIAN_MATCHED = Fault(
    name="gaussian_matched",
    paper=MORE_ROBUST,
    description="Gaussian noise of the mean and spread of the layer",
    corrupt=_matched,
)
