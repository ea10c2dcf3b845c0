"""How examples are treated, whatever the examples are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from kvbench.engine.treat.time_limit import TimeLimit
from kvbench.prompts.mode import Mode, Scope
from kvbench.system.memory import kv_share
from policies import Point, Policy

Progress = Callable[[int], None]  # told how many questions were just answered


def silent(_: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Setting:
    """``points``: the levels, and the draws of random policies at each. ``seed``: of random policies.
    ``max_kv_bytes``: bound on the keys and values decoded at once, ``None`` for a share of what is free by then.
    ``time_limit``: with a press that takes long. ``scope``: what is compressed, the context of any task, or the system
    prompt of those that have one."""

    policies: Sequence[Policy]
    points: Sequence[Point]
    seed: int = 0
    mode: Mode = "agnostic"
    max_kv_bytes: int | None = None
    time_limit: TimeLimit = field(default_factory=TimeLimit)
    scope: Scope = "context"
    tables: tuple[str, ...] = ()  # of studies, which are filled beside those of every run (kvbench.store.tables)

    def only(self, policies: Sequence[Policy]) -> Self:
        """The same with other policies."""
        return replace(self, policies=policies)

    def at(self, points: Sequence[Point]) -> Self:
        """The same at those of its levels and draws alone."""
        return replace(self, points=[point for point in self.points if point in points])

    def shared_by(self, workers: int, device: torch.device) -> Self:
        """The same for each of several workers on a device: together they stay within the bound."""
        return replace(self, max_kv_bytes=self.kv_bound(device) // workers)

    def kv_bound(self, device: torch.device) -> int:
        """The bound in bytes, now."""
        return kv_share(device) if self.max_kv_bytes is None else self.max_kv_bytes
