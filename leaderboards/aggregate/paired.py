"""Two policies on the same questions: the difference, its interval, and whether it is more than chance.

Questions about one context are not independent, so contexts are resampled. Right against wrong, and hallucinated or
not, is McNemar's test on the questions that the two answer differently, corrected over all cells that are compared by
Holm's method.

The draws of a random policy are averaged question by question before anything is subtracted. McNemar's test counts
answers, and takes those of the first draw: an answer that is right in two of three draws is no answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate.answer_tables import CELL, QUESTION, AnswerTable, answer_tables, sound_cells
from leaderboards.errors import LeaderboardError
from leaderboards.statistics.bootstrap import (
    DIGITS,
    RESAMPLES,
    FloatArray,
    cluster_weights,
    percentile_interval,
    percentile_intervals,
    task_seed,
)
from leaderboards.statistics.significance import ALPHA, corrected, mcnemar_p, wilcoxon_p
from policies.declaration.levels import Level

Pair = tuple[FloatArray, FloatArray]  # a measure of either, question by question
Verdict = Literal["better", "worse", "tied"]
SIDES = ("_one", "_other")


@dataclass(frozen=True)
class Difference:
    """The mean difference of a measure, and its 95 % interval."""

    mean: float
    low: float | None  # None from a single context
    high: float | None

    @classmethod
    def of(cls, values: FloatArray) -> Self:
        """Makes one of a difference as measured and as resampled, shape (1 + resamples,)."""
        low, high = percentile_interval(values[1:]) if len(values) > 1 else (None, None)
        return cls(float(values[0]), low, high)

    @classmethod
    def between(cls, one: FloatArray, other: FloatArray) -> Self:
        """Subtracts two measures of the same resamples, each of shape (1 + resamples,). Where two are equal but for the
        noise of sums, the difference is 0: it would else be as clear as any."""
        return cls.of(np.round(one - other, DIGITS))

    @property
    def is_clear(self) -> bool:
        """Tells whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def written(self, factor: float = 1) -> str:
        """As it is shown, such as ``+12 [+3, +20]``; with as many digits, up to two, as tell a clear one from 0."""
        if self.low is None or self.high is None:
            return f"{factor * self.mean:+.0f}"
        nearest = factor * min(abs(self.low), abs(self.high))
        digits = 0 if not self.is_clear or nearest >= 0.5 else 1 if nearest >= 0.05 else 2
        mean, low, high = (f"{factor * number:+.{digits}f}" for number in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"


@dataclass(frozen=True)
class Duel:
    """One policy against another at a task and level. Each p is corrected over all cells that are compared."""

    policy: str
    other: str
    task: str
    level: Level
    questions: int
    contexts: int
    f1: Difference  # this one minus the other, in percent
    hallucination: Difference  # the same of the hallucination rate, in [-1, 1]
    only_one: int  # questions that this one alone answers rightly
    only_other: int
    p: float  # of McNemar's test on these
    only_one_hallucinates: int  # questions in whose answer this one alone hallucinates
    only_other_hallucinates: int
    hallucination_p: float  # of McNemar's test on these
    f1_p: float | None = None  # of Wilcoxon's on the contexts' mean differences of F1; None where fewer than 6 differ

    @property
    def verdict(self) -> Verdict:
        """Better or worse where the interval of F1 leaves out 0, and the corrected test agrees that more questions are
        answered rightly by the same one; else tied."""
        more = self.only_one - self.only_other
        if self.p >= ALPHA or not self.f1.is_clear or more * self.f1.mean <= 0:
            return "tied"
        return "better" if more > 0 else "worse"

    @property
    def hallucination_verdict(self) -> Verdict:
        """The same of hallucinations, of which fewer is better."""
        if self.hallucination_p >= ALPHA or not self.hallucination.is_clear:
            return "tied"
        return "better" if self.hallucination.mean < 0 else "worse"


def paired(records: DataFrame, policy: str, other: str) -> DataFrame:
    """The questions that both answered, a row each with the columns of both (``_one``, ``_other``), without the cells
    in which either failed somewhere; of a random policy the answers of its first draw."""
    sound = sound_cells(records[records["policy"].isin((policy, other))])
    sound = sound[sound["repeat"] == 0]
    own = [sound[sound["policy"] == name] for name in (policy, other)]
    return own[0].merge(own[1], on=[*CELL, *QUESTION], suffixes=SIDES)


def duels(records: DataFrame, policy: str, others: Sequence[str], seed: int = 0) -> list[Duel]:
    """The policy against each of the others, at every task and level that both have in full; p is corrected over all
    of them."""
    pairs = [(policy, other) for other in others]
    tables = answer_tables(records[records["policy"].isin((policy, *others))])
    met = [duel for table in tables for duel in _met(table, pairs, seed, signed_ranks=True)]
    found = [duel for other in others for duel in met if duel.other == other]
    if not found:
        raise LeaderboardError(f"{policy} and {', '.join(others)} have no cell in common that is complete")
    return _corrected(found, f"{policy} against {', '.join(others)}, every task and level")


def every_duel(records: DataFrame, seed: int = 0) -> dict[tuple[str, str], list[Duel]]:
    """Any two policies, as ``duels`` of the two alone would have it, but for Wilcoxon's test."""
    tables = answer_tables(records)
    names = list(dict.fromkeys(name for table in tables for name in table.policies))
    found: dict[tuple[str, str], list[Duel]] = {pair: [] for pair in combinations(names, 2)}
    for table in tables:
        own = [pair for pair in found if set(pair) <= set(table.policies)]
        for duel in _met(table, own, seed, signed_ranks=False):
            found[duel.policy, duel.other].append(duel)
    return {pair: _corrected(own, f"{pair[0]} against {pair[1]}, every task and level") for pair, own in found.items()}


def _corrected(found: Sequence[Duel], family: str) -> list[Duel]:
    right = corrected({place: duel.p for place, duel in enumerate(found)}, f"right or wrong: {family}")
    lied = corrected({place: duel.hallucination_p for place, duel in enumerate(found)}, f"hallucination: {family}")
    f1 = corrected({place: duel.f1_p for place, duel in enumerate(found) if duel.f1_p is not None}, f"F1: {family}")
    return [
        replace(duel, p=right.p[place], hallucination_p=lied.p[place], f1_p=f1.p.get(place))
        for place, duel in enumerate(found)
    ]


def _met(table: AnswerTable, pairs: Sequence[tuple[str, str]], seed: int, signed_ranks: bool) -> list[Duel]:
    """Compares the pairs that answered some of the same questions; no p is corrected yet. ``signed_ranks``: whether
    Wilcoxon's test is made, which takes longer than all the rest."""
    places = {name: place for place, name in enumerate(table.policies)}
    known = [pair for pair in pairs if set(pair) <= set(places)]
    one, other = (np.array([places[pair[side]] for pair in known], dtype=np.intp) for side in (0, 1))
    common = table.there[one] & table.there[other]
    right = table.first_right > 0
    lied, honest = table.first_hallucinated > 0, table.first_hallucinated == 0  # NaN is neither
    only_one = (common & right[one] & ~right[other]).sum(axis=1).tolist()
    only_other = (common & right[other] & ~right[one]).sum(axis=1).tolist()
    only_one_lied = (common & lied[one] & honest[other]).sum(axis=1).tolist()
    only_other_lied = (common & lied[other] & honest[one]).sum(axis=1).tolist()
    f1 = table.f1[one] - table.f1[other]
    seed = task_seed(seed, table.task)  # as of the rows: a mark and a verdict shall not differ by chance
    hallucinated = differences(table.hallucinated[one] - table.hallucinated[other], table.draws, seed)
    return [
        Duel(
            policy=pair[0],
            other=pair[1],
            task=table.task,
            level=table.level,
            questions=int(common[place].sum()),
            contexts=len(np.unique(table.contexts[common[place]])),
            f1=difference,
            hallucination=hallucinated[place],
            only_one=only_one[place],
            only_other=only_other[place],
            p=mcnemar_p(only_one[place], only_other[place]),
            only_one_hallucinates=only_one_lied[place],
            only_other_hallucinates=only_other_lied[place],
            hallucination_p=mcnemar_p(only_one_lied[place], only_other_lied[place]),
            f1_p=wilcoxon_p(f1[place], table.draws) if signed_ranks else None,
        )
        for place, (pair, difference) in enumerate(zip(known, differences(f1, table.draws, seed), strict=True))
        if common[place].any()
    ]


def both(cell: DataFrame, column: str) -> Pair:
    """A column of both as floats, NaN where a question has no such value, as an attack has no hallucination."""
    one, other = (cell[f"{column}{side}"].to_numpy(dtype=np.float64, na_value=np.nan) for side in SIDES)
    return one, other


def difference(cell: DataFrame, pair: Pair, seed: int) -> Difference:
    """Compares a measure over the questions of ``cell``; see :func:`differences`."""
    return differences((pair[0] - pair[1])[None], factorize(cell["draw_id_one"], sort=True)[0], seed)[0]


def differences(values: FloatArray, draws: NDArray[np.intp], seed: int) -> list[Difference]:
    """The mean of each row of ``values``, differences of two policies question by question, shape (rows, questions).
    Questions without a value (NaN) are left out. Contexts are resampled, by their ``draws``, shape (questions,)."""
    known = ~np.isnan(values)
    found: list[Difference] = [Difference(0.0, None, None)] * len(values)
    for mask in np.unique(known, axis=0):
        if mask.any():
            rows = np.flatnonzero((known == mask).all(axis=1))
            for row, one in zip(rows.tolist(), _means(values[np.ix_(rows, mask)], draws[mask], seed), strict=True):
                found[row] = one
    return found


def _means(values: FloatArray, draws: NDArray[np.intp], seed: int) -> list[Difference]:
    """The same where all have a value."""
    means = values.mean(axis=1).tolist()
    clusters, places = np.unique(draws, return_inverse=True)
    if len(clusters) < 2:
        return [Difference(mean, None, None) for mean in means]
    of_cluster = (places[:, None] == np.arange(len(clusters))).astype(np.float64)
    weights = cluster_weights(len(clusters), seed, RESAMPLES)
    resampled = (values @ of_cluster) @ weights.T / (of_cluster.sum(axis=0) @ weights.T)
    lows, highs = percentile_intervals(np.round(resampled, DIGITS))
    return [Difference(*one) for one in zip(means, lows.tolist(), highs.tolist(), strict=True)]
