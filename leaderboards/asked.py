"""What a cell was asked to reach."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pandas import Categorical, DataFrame, Series, factorize, isna

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
    """What each record was asked to reach, as a category: records are grouped by it again and again."""
    (ratios, ratio), (budgets, budget) = (factorize(records[name].astype(float)) for name in ("ratio", "budget"))
    # A missing value has the code -1, and so the last place.
    levels = {
        (row, column): Asked.of(None if row < 0 else float(ratio[row]), None if column < 0 else float(budget[column]))
        for row, column in set(zip(ratios.tolist(), budgets.tolist(), strict=True))
    }
    ordered = sorted(set(levels.values()))
    codes = np.zeros((len(ratio) + 1, len(budget) + 1), dtype=np.intp)
    for place, asked in levels.items():
        codes[place] = ordered.index(asked)
    return Series(Categorical.from_codes(codes[ratios, budgets], ordered, ordered=True), index=records.index)
