"""What a cell was asked to reach."""

from dataclasses import dataclass
from typing import Literal, Self

from pandas import DataFrame, Series, isna

TITLES = {
    "ratio": "asked ratio: the share of the cache to remove",
    "budget": "asked budget: tokens of each context to keep in every head",
}


@dataclass(frozen=True, order=True)
class Asked:
    """A ``ratio``, the share of the cache to remove, in [0, 1); or a ``budget``, the tokens to keep in every head,
    which is another ratio for every length."""

    kind: Literal["budget", "ratio"]
    value: float

    @classmethod
    def of(cls, ratio: float | None, budget: float | None = None) -> Self:
        """A missing budget is None or NaN."""
        return cls("ratio", float(ratio or 0)) if isna(budget) else cls("budget", float(budget or 0))

    def __str__(self) -> str:
        """The number, without the noise of binary fractions."""
        return f"{self.value:.6g}"

    @property
    def where(self) -> str:
        return f"{self.kind} {self}"


def asked_in(records: DataFrame) -> Series:
    """What each record was asked to reach."""
    pairs = list(zip(records["ratio"], records["budget"], strict=True))
    known = {pair: Asked.of(*pair) for pair in pairs}
    return Series([known[pair] for pair in pairs], index=records.index, dtype=object)
