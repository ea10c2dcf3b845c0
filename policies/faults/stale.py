"""Leaves rows that should be overwritten: a slot still holds what it held before."""

from typing import TYPE_CHECKING

from pydantic import Field

from policies.declaration.lazy import LazyModule
from policies.declaration.steps import ABSENT
from policies.faults.fault import MORE_ROBUST, Fault, Site
from policies.faults.options import FaultOptions

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")


class StaleOptions(FaultOptions):
    page: int = Field(16, ge=1, le=4096)  # rows of a page of the cache


def _stale(site: Site) -> "torch.Tensor":
    """Gives each row what stands one page before it in the same head; the first page was never filled and holds zeros.

    In a full cache that is the row of the token one page before, with the position that it was turned to; behind a
    press, the row one page before among those that the head keeps.
    """
    assert isinstance(site.options, StaleOptions)
    page, rows = site.options.page, site.states.shape[2]
    before = torch.zeros_like(site.states)
    if page < rows:
        there = (site.tokens[..., : rows - page] != ABSENT)[..., None]
        before[:, :, page:] = torch.where(there, site.states[:, :, : rows - page], 0.0)
    return before


STALE = Fault(
    name="stale",
    paper=MORE_ROBUST,
    description="Rows of the page of 16 before, as if not overwritten",
    corrupt=_stale,
    options=StaleOptions,
)
