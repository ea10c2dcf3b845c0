"""How examples are treated, whatever the examples are."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from kvbench.engine.bounds import Patience
from kvbench.engine.memory import kv_share
from kvbench.options import Mode, Scope
from leaderboards import Asked
from policies import Policy

Progress = Callable[[int], None]  # told how many questions were just answered


def silent(_: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Setting:
    """``budgets``: in tokens of a head. ``seed``: of random policies. ``max_kv_bytes``: bound on the keys and values
    decoded at once, ``None`` for a share of what is free by then. ``patience``: with a press that takes long.
    ``scope``: what is compressed, the context of any task, or the system prompt of those that have one."""

    policies: Sequence[Policy]
    ratios: Sequence[float]
    seed: int = 0
    mode: Mode = "agnostic"
    max_kv_bytes: int | None = None
    patience: Patience = field(default_factory=Patience)
    budgets: Sequence[int] = ()
    scope: Scope = "context"
    tables: tuple[str, ...] = ()  # of studies, which are filled beside those of every run (kvbench.tables)

    def only(self, policies: Sequence[Policy]) -> Self:
        """The same with other policies."""
        return replace(self, policies=policies)

    def at(self, levels: Collection[Asked]) -> Self:
        """The same with those of its ratios and budgets alone."""
        return replace(
            self,
            ratios=[ratio for ratio in self.ratios if Asked("ratio", ratio) in levels],
            budgets=[budget for budget in self.budgets if Asked("budget", budget) in levels],
        )

    def shared_by(self, workers: int, device: torch.device) -> Self:
        """The same for each of several workers on a device: together they stay within the bound."""
        return replace(self, max_kv_bytes=self.kv_bound(device) // workers)

    def kv_bound(self, device: torch.device) -> int:
        """The bound in bytes, now."""
        return kv_share(device) if self.max_kv_bytes is None else self.max_kv_bytes
