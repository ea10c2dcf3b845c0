"""A setting: how examples are treated, whatever the examples are."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from kvbench.engine.numerics.options import NumericsOptions
from kvbench.engine.treat.time_limit import TimeLimit
from kvbench.prompts.mode import Mode, Scope
from policies import LazyModule, Point, Policy

if TYPE_CHECKING:
    import torch

memory = LazyModule("kvbench.system.memory")  # it needs torch, and options are checked before that is imported


@dataclass(frozen=True)
class Setting:
    """The options by which a run treats and decodes every example."""

    policies: Sequence[Policy]
    points: Sequence[Point]  # the levels, and the draws of random policies at each
    seed: int = 0  # of random policies
    mode: Mode = "agnostic"
    max_kv_bytes: int | None = None  # of keys and values decoded at once; None for a share of what is free by then
    time_limit: TimeLimit = field(default_factory=TimeLimit)  # of a press
    scope: Scope = "context"  # what is compressed: the context of any task, or the system prompts of those with one
    numerics: NumericsOptions = field(default_factory=NumericsOptions)  # where its tables are among those filled
    tables: tuple[str, ...] = ()  # of studies, which are filled beside those of every run (kvbench.store.tables)

    @property
    def options_of_tables(self) -> dict[str, str]:
        """Returns the options that decide what its tables hold, as texts."""
        return self.numerics.as_texts() if any(name.startswith("numerics") for name in self.tables) else {}

    def only(self, policies: Sequence[Policy]) -> Self:
        """Returns the same with other policies."""
        return replace(self, policies=policies)

    def at(self, points: Sequence[Point]) -> Self:
        """Returns the same at those of its levels and draws alone."""
        return replace(self, points=[point for point in self.points if point in points])

    def shared_by(self, workers: int, device: "torch.device") -> Self:
        """Returns the same for each of several workers on a device: together they stay within the bound."""
        return replace(self, max_kv_bytes=self.kv_bound(device) // workers)

    def kv_bound(self, device: "torch.device") -> int:
        """Returns the bound in bytes, now."""
        share: int = memory.kv_share(device) if self.max_kv_bytes is None else self.max_kv_bytes
        return share
