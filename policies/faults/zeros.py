"""Makes rows read as zeros: a page that was never filled, an offload that returns nothing."""

from policies.declaration.lazy import LazyModule
from policies.faults.fault import MORE_ROBUST, Fault

torch = LazyModule("torch")

ZEROS = Fault(
    name="zeros",
    paper=MORE_ROBUST,
    description="Rows of zeros, as of a page that was never filled",
    corrupt=lambda site: torch.zeros_like(site.states),
)
