"""Puts in rows of another context, as a page table does that points to the cache of somebody else."""

from typing import TYPE_CHECKING

from policies.declaration.errors import PolicyError
from policies.declaration.lazy import LazyModule
from policies.faults.fault import MORE_ROBUST, Fault, Site

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")


def _of_another_context(site: Site) -> "torch.Tensor":
    """Gives each row that of the same layer, head and position in the donor; behind its end a donor begins again."""
    rows = []
    for situation, positions in zip(site.situations, site.positions, strict=True):
        if situation.donor is None:
            raise PolicyError("distractor needs the rows of another context, and there is none here")
        donor: torch.Tensor = getattr(situation.donor(), site.tensor)[site.layer].to(site.states.device)
        index = (positions % donor.shape[1])[..., None].expand_as(site.states[0])
        rows.append(donor.gather(1, index))
    return torch.stack(rows)


DISTRACTOR = Fault(
    name="distractor",
    paper=MORE_ROBUST,
    description="Rows of another context of the task, same positions",
    corrupt=_of_another_context,
    needs_donor=True,
)
