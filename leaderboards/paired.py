"""Two policies on the same questions: the difference, its interval, and whether it is more than chance.

Questions about one context are not independent, so contexts are resampled. Right against wrong is McNemar's test on the
questions that the two answer differently, corrected over all cells that are compared by Holm's method.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.asked import Asked, asked_in
from leaderboards.bootstrap import FloatArray, percentile_interval, resampled_means
from leaderboards.errors import LeaderboardError
from leaderboards.significance import ALPHA, corrected, mcnemar_p, wilcoxon_p

Pair = tuple[FloatArray, FloatArray]  # a measure of either, question by question
Verdict = Literal["better", "worse", "tied"]
CELL = ["task", "asked"]
KEY = ["mode", *CELL, "example_id", "question_id"]
RIGHT = 100.0  # exact match, in percent
SIDES = ("_one", "_other")


@dataclass(frozen=True)
class Difference:
    """The mean difference of a measure, and its 95 % interval; None from a single context."""

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: FloatArray) -> Self:
        """Of a difference as measured and as resampled, shape (1 + resamples,)."""
        low, high = percentile_interval(values[1:]) if len(values) > 1 else (None, None)
        return cls(float(values[0]), low, high)

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def written(self, factor: float = 1) -> str:
        """As it is shown, such as ``+12 [+3, +20]``."""
        if self.low is None or self.high is None:
            return f"{factor * self.mean:+.0f}"
        return f"{factor * self.mean:+.0f} [{factor * self.low:+.0f}, {factor * self.high:+.0f}]"


@dataclass(frozen=True)
class Duel:
    """One policy against another at a task and level.

    ``f1`` in percent and ``hallucination`` in [-1, 1]: this one minus the other. ``only_one``, ``only_other``:
    questions that just one of them answers exactly. ``p``: of McNemar's test on these; ``f1_p``: of Wilcoxon's on the
    contexts' mean differences of F1, None where fewer than 6 differ; either is corrected over all cells compared.
    """

    policy: str
    other: str
    task: str
    asked: Asked
    questions: int
    contexts: int
    f1: Difference
    hallucination: Difference
    only_one: int
    only_other: int
    p: float
    f1_p: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Better or worse where the interval of F1 leaves out 0, and the corrected test agrees that more questions are
        answered exactly by the same one; else tied."""
        more = self.only_one - self.only_other
        if self.p >= ALPHA or not self.f1.is_clear or more * self.f1.mean <= 0:
            return "tied"
        return "better" if more > 0 else "worse"


def paired(records: DataFrame, policy: str, other: str) -> DataFrame:
    """The questions that both answered, a row each with the columns of both (``_one``, ``_other``), without the cells
    in which either failed somewhere."""
    sound = [_without_failed_cells(records[records["policy"] == name]) for name in (policy, other)]
    return sound[0].merge(sound[1], on=KEY, suffixes=SIDES)


def duels(records: DataFrame, policy: str, others: Sequence[str], seed: int = 0) -> list[Duel]:
    """The policy against each of the others, at every task and level that both have in full."""
    found = []
    for other in others:
        for (task, asked), cell in paired(records, policy, other).groupby(CELL, sort=False, observed=True):
            found.append(_duel(policy, other, str(task), asked, cell, seed))
    if not found:
        raise LeaderboardError(f"{policy} and {', '.join(others)} have no cell in common that is complete")
    family = f"{policy} against {', '.join(others)}, every task and level"
    right = corrected({place: duel.p for place, duel in enumerate(found)}, f"right or wrong: {family}")
    f1 = corrected({place: duel.f1_p for place, duel in enumerate(found) if duel.f1_p is not None}, f"F1: {family}")
    return [replace(duel, p=right.p[place], f1_p=f1.p.get(place)) for place, duel in enumerate(found)]


def is_right(exact_match: FloatArray) -> NDArray[np.bool_]:
    right: NDArray[np.bool_] = exact_match >= RIGHT
    return right


def _without_failed_cells(own: DataFrame) -> DataFrame:
    own = own.assign(asked=asked_in(own))
    failed = set(own[own["status"] != "ok"].groupby(CELL, observed=True).groups)
    sound = [cell not in failed for cell in zip(own["task"], own["asked"], strict=True)]
    return own[np.array(sound, dtype=bool)]


def _duel(policy: str, other: str, task: str, asked: Asked, cell: DataFrame, seed: int) -> Duel:
    one, another = (is_right(values) for values in both(cell, "em"))
    only_one, only_other = int(np.sum(one & ~another)), int(np.sum(another & ~one))
    f1 = both(cell, "f1")
    return Duel(
        policy=policy,
        other=other,
        task=task,
        asked=asked,
        questions=len(cell),
        contexts=int(cell["example_id"].nunique()),
        f1=difference(cell, f1, seed),
        hallucination=difference(cell, both(cell, "hallucinated"), seed),
        only_one=only_one,
        only_other=only_other,
        p=mcnemar_p(only_one, only_other),
        f1_p=wilcoxon_p(f1[0] - f1[1], factorize(cell["draw_id_one"])[0]),
    )


def both(cell: DataFrame, column: str) -> Pair:
    """A column of both as floats, NaN where a question has no such value, as an attack has no hallucination."""
    one, other = (cell[f"{column}{side}"].to_numpy(dtype=np.float64, na_value=np.nan) for side in SIDES)
    return one, other


def difference(cell: DataFrame, pair: Pair, seed: int) -> Difference:
    """Of a measure over the questions of ``cell``, those without a value left out; contexts are resampled."""
    values = pair[0] - pair[1]
    known = values[~np.isnan(values)]
    means = resampled_means(values, cell["draw_id_one"].to_numpy(dtype=np.str_), seed)
    low, high = percentile_interval(means) if means is not None else (None, None)
    return Difference(float(known.mean()) if len(known) else 0.0, low, high)
