"""Compares two policies on the same questions: the difference, its interval, and whether it is more than chance.

Questions about one context are not independent, so contexts are what is drawn: a cell's difference is tested by the
means of random subsets of its contexts, which is exact also for few of them. The levels of a task are one family,
corrected by Holm's method, and the interval that is shown is that of the corrected test: it leaves out 0 where the
verdict says so.

The draws of a random policy are averaged question by question before anything is subtracted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate import row
from leaderboards.aggregate.answer_tables import CELL, DEFENDED, QUESTION, AnswerTable, answer_tables, sound_cells
from leaderboards.errors import LeaderboardError
from leaderboards.metrics import Measure
from leaderboards.statistics.bootstrap import (
    DIGITS,
    RESAMPLES,
    FloatArray,
    cluster_weights,
    percentile_interval,
    percentile_intervals,
    task_seed,
)
from leaderboards.statistics.significance import ALPHA, correct_p, mcnemar_p
from leaderboards.statistics.subset_means import (
    Tails,
    fewest_clusters,
    smallest_detectable,
    spread_of,
    step_down_levels,
    subsets,
    two_sided_p,
)
from policies.declaration.levels import Level

Pair = tuple[FloatArray, FloatArray]  # a measure of either, question by question
Verdict = Literal["better", "worse", "not distinguished"]
UNDECIDED: Verdict = "not distinguished"
SIDES = ("_one", "_other")
POINTS = "points"  # of percent: the unit of all differences that are shown or written
MORE = 4  # times as many contexts are named beside what cannot be seen: they see half of it


@dataclass(frozen=True)
class Compared:
    """A measure that two policies are compared by."""

    name: str  # the column of the answers
    measure: Measure  # which says title, unit and better end
    short: str  # in a terminal
    factor: float  # from the column to the unit
    of: str = ""  # the column of the answers, if it is not the name
    over: str = ""  # of a share: the column whose sum it is over; else it is a mean over questions

    @property
    def column(self) -> str:
        return self.of or self.name

    @property
    def title(self) -> str:
        """Returns the title as it stands within a sentence."""
        title = self.measure.title
        return title if title.isupper() else title[0].lower() + title[1:]

    @property
    def unit(self) -> str:
        return self.measure.unit

    @property
    def lower_is_better(self) -> bool:
        return self.measure.better == "lower"


F1 = Compared("f1", row.F1, "F1", 1)
HALLUCINATION = Compared("hallucinated", row.HALLUCINATION, "hallucination", 100)
WRONG = Compared(
    *("wrong_of_answered", row.WRONG_OF_ANSWERED, "wrong of answered", 100), of="hallucinated", over="answered"
)
OBEYED = Compared("directives_obeyed", row.OBEYED, "obeyed", 100)
LEAKED = Compared(DEFENDED, row.LEAKAGE, "leakage", 100)
# The first that a cell has gives its verdict. The hallucination rate is the last: it falls where a model falls silent.
COMPARED = {one.name: one for one in (OBEYED, LEAKED, F1, WRONG, HALLUCINATION)}
OF_EVERY_TWO = {
    name: one for name, one in COMPARED.items() if one is not HALLUCINATION
}  # of any two policies of a board


@dataclass(frozen=True)
class MeanDifference:
    """The mean difference of a measure, and its 95 % interval."""

    mean: float
    low: float | None  # None from too few contexts, and where resamples have no value
    high: float | None

    @classmethod
    def of(cls, values: FloatArray) -> Self:
        """Makes one of a difference as measured and as resampled, shape (1 + resamples,)."""
        known = len(values) > 1 and not np.isnan(values).any()
        low, high = percentile_interval(values[1:]) if known else (None, None)
        return cls(float(values[0]), low, high)

    @classmethod
    def between(cls, one: FloatArray, other: FloatArray) -> Self:
        """Subtracts two measures of the same resamples, each of shape (1 + resamples,). Where two are equal but for the
        noise of sums, the difference is 0: it would else be as clear as any."""
        return cls.of(np.round(one - other, DIGITS))

    def times(self, factor: float) -> "MeanDifference":
        """Returns the same in another unit."""
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        return MeanDifference(factor * self.mean, low, high)

    @property
    def is_clear(self) -> bool:
        """Tells whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def text(self, factor: float = 1) -> str:
        """Writes the difference as it is shown, such as ``+12 [+3, +20]``, with as many digits, up to two, as tell its
        ends from 0."""
        if self.low is None or self.high is None:
            return f"{factor * self.mean:+z.0f}"
        nearest = factor * min(abs(self.low), abs(self.high))
        digits = 0 if nearest >= 0.5 or nearest < 0.005 else 1 if nearest >= 0.05 else 2
        mean, low, high = (f"{factor * number:+z.{digits}f}" for number in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"


@dataclass(frozen=True)
class Contest:
    """Two policies by one measure in one cell."""

    measure: Compared
    difference: MeanDifference  # this one minus the other; its interval is that of the corrected test
    alpha: float  # the level at which Holm's method tests it
    p: float  # of the means of subsets, corrected over the levels of the task
    contexts: int  # that have a value
    spread: float  # the standard deviation of the contexts' differences, as the column has them
    opposed: bool = False  # one has the higher F1, and the other has more questions right

    @property
    def verdict(self) -> Verdict:
        """Says better or worse where the corrected p is below 0.05, unless F1 and the right answers disagree."""
        if self.p >= ALPHA or not self.difference.is_clear or self.opposed:
            return UNDECIDED
        return "better" if (self.difference.mean < 0) == self.measure.lower_is_better else "worse"

    def smallest(self, contexts: int | None = None) -> float | None:
        """Returns the smallest true difference that so many contexts tell from 0 four times in five, in the unit of the
        measure; None where they are too few for any, or where nothing differs."""
        smallest_difference = (
            smallest_detectable(self.spread, contexts or self.contexts, self.alpha) if self.spread else None
        )
        return None if smallest_difference is None else self.measure.factor * smallest_difference

    @property
    def points(self) -> MeanDifference:
        """Returns the difference in points."""
        return self.difference.times(self.measure.factor)

    @property
    def text(self) -> str:
        """Writes the difference as it is shown."""
        return self.points.text()

    @property
    def explanation(self) -> str:
        """Writes the verdict, and why it is none."""
        if self.verdict != UNDECIDED:
            return self.verdict
        if self.opposed and self.p < ALPHA:
            return f"{UNDECIDED} (F1 and the right answers point in different directions)"
        if not self.spread and not self.difference.mean:
            return f"{UNDECIDED} (the same in all of n = {self.contexts})"
        smallest, with_more = self.smallest(), self.smallest(MORE * self.contexts)
        return f"{UNDECIDED} ({unseen(self.contexts, smallest, with_more, self.contexts)})"


def unseen(n: int | str, smallest: float | None, with_more: float | None, limit: int, family: int = 1) -> str:
    """Says what could not have been seen with ``n`` contexts, and what more of them would see; ``limit``: contexts of a
    task; ``family``: tests that are corrected together, of which more need more contexts."""
    more = "" if with_more is None else f"; --limit {MORE * limit} would see ±{_digits(with_more)}"
    if smallest is None:
        at_once = f" in {family} tests at once" if family > 1 else ""
        return f"n = {n} is too few to tell any difference{at_once}{more}"
    return f"differences below ±{_digits(smallest)} cannot be seen with n = {n}{more}"


def _digits(number: float) -> str:
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}"


@dataclass(frozen=True)
class Duel:
    """One policy against another at a task and level."""

    policy: str
    other: str
    task: str
    level: Level
    questions: int
    contexts: int
    family: int  # levels of the task, over which each p is corrected
    contests: Mapping[str, Contest]  # by column, of those measures that the task has
    only_one: int  # questions that this one alone has right, of the first draw of a random policy
    only_other: int

    @property
    def lead(self) -> Contest:
        """Returns the contest that gives the verdict: directives obeyed where the task has directives, else F1."""
        return next(self.contests[name] for name in COMPARED if name in self.contests)

    @property
    def verdict(self) -> Verdict:
        return self.lead.verdict

    @property
    def right_p(self) -> float:
        """Returns McNemar's p of the questions that just one has right. It takes questions for independent, is not
        corrected, and decides nothing."""
        return mcnemar_p(self.only_one, self.only_other)


def join_pairs(records: DataFrame, policy: str, other: str) -> DataFrame:
    """Joins the questions that both answered, a row each with the columns of both (``_one``, ``_other``), without the
    cells in which either failed somewhere; of a random policy the answers of its first draw."""
    sound = sound_cells(records[records["policy"].isin((policy, other))])
    sound = sound[sound["repeat"] == 0]
    records_of_sides = [sound[sound["policy"] == name] for name in (policy, other)]
    return records_of_sides[0].merge(records_of_sides[1], on=[*CELL, *QUESTION], suffixes=SIDES)


def duels(records: DataFrame, policy: str, others: Sequence[str], seed: int = 0) -> list[Duel]:
    """Compares the policy with each of the others, at every task and level that both have in full; each p is corrected
    over the levels of the task."""
    pairs = [(policy, other) for other in others]
    tables = answer_tables(records[records["policy"].isin((policy, *others))])
    met = list(_duels_of_pairs(tables, pairs, COMPARED, seed))
    duels_of_others = [duel for other in others for duel in met if duel.other == other]
    if not duels_of_others:
        raise LeaderboardError(f"{policy} and {', '.join(others)} have no cell in common that is complete")
    return duels_of_others


def every_duel(records: DataFrame, seed: int = 0) -> dict[tuple[str, str], list[Duel]]:
    """Compares any two policies, as ``duels`` of the two alone would, by the measures of :data:`OF_EVERY_TWO`."""
    tables = answer_tables(records)
    names = list(dict.fromkeys(name for table in tables for name in table.policies))
    by_pair: dict[tuple[str, str], list[Duel]] = {pair: [] for pair in combinations(names, 2)}
    for duel in _duels_of_pairs(tables, list(by_pair), OF_EVERY_TWO, seed):
        by_pair[duel.policy, duel.other].append(duel)
    return by_pair


@dataclass(frozen=True)
class _Sample:
    """A difference before anything is corrected."""

    mean: float
    tails: Tails
    p: float
    contexts: int
    spread: float


@dataclass(frozen=True)
class _Cell:
    """Two policies at one level of a task, before anything is corrected."""

    level: Level
    questions: int
    contexts: int
    only_one: int
    only_other: int
    samples: Mapping[str, _Sample]  # by column, of the measures that some question has a value of


def _duels_of_pairs(
    tables: Sequence[AnswerTable], pairs: Sequence[tuple[str, str]], measures: Mapping[str, Compared], seed: int
) -> Iterator[Duel]:
    """Compares the pairs that answered some of the same questions, task by task."""
    for task, levels in groupby(tables, lambda table: table.task):
        # As of the rows: a mark and a verdict shall not differ by chance.
        by_level = [_cells(table, pairs, measures, task_seed(seed, task)) for table in levels]
        for pair in pairs:
            yield from _duels_of_task(pair, task, [cells[pair] for cells in by_level if pair in cells])


def _duels_of_task(pair: tuple[str, str], task: str, cells: Sequence[_Cell]) -> Iterator[Duel]:
    contests: list[dict[str, Contest]] = [{} for _ in cells]
    for measure in COMPARED.values():
        having = [place for place, cell in enumerate(cells) if measure.name in cell.samples]
        for place, contest in zip(having, _contests(measure, [cells[place] for place in having]), strict=True):
            contests[place][measure.name] = contest
    for cell, cell_duels in zip(cells, contests, strict=True):
        one, other, counts = *pair, (cell.questions, cell.contexts, len(cells))
        yield Duel(one, other, task, cell.level, *counts, cell_duels, cell.only_one, cell.only_other)


def _cells(
    table: AnswerTable, pairs: Sequence[tuple[str, str]], measures: Mapping[str, Compared], seed: int
) -> dict[tuple[str, str], _Cell]:
    """Makes a cell of each pair that has a value of some measure."""
    places = {name: place for place, name in enumerate(table.policies)}
    known = [pair for pair in pairs if set(pair) <= set(places)]
    one, other = (np.array([places[pair[side]] for pair in known], dtype=np.intp) for side in (0, 1))
    samples: list[dict[str, _Sample]] = [{} for _ in known]
    for name, measure in measures.items():
        values = table.values[measure.column]
        there = ~np.isnan(values[one] - values[other])
        for mask in np.unique(there, axis=0):
            if mask.any():
                rows = np.flatnonzero((there == mask).all(axis=1))
                draws = table.draws[mask]
                if measure.over:
                    shared = values[:, mask], table.values[measure.over][:, mask]
                    of_cell = _of_shares(*shared, (one[rows], other[rows]), draws, seed)
                else:
                    of_cell = _of_contexts((values[one[rows]] - values[other[rows]])[:, mask], draws, seed)
                samples_of_measure = zip(rows.tolist(), of_cell, strict=True)
                for row, sample in ((row, sample) for row, sample in samples_of_measure if sample is not None):
                    samples[row][name] = sample
    common, right = table.there[one] & table.there[other], table.first_right
    counts = (common, common & right[one] & ~right[other], common & right[other] & ~right[one])
    questions, only_one, only_other = (each.sum(axis=1).tolist() for each in counts)
    contexts = [len(np.unique(table.contexts[mask])) for mask in common]
    cells = map(_Cell, [table.level] * len(known), questions, contexts, only_one, only_other, samples)
    return {pair: cell for pair, cell in zip(known, cells, strict=True) if cell.samples}


def _of_contexts(values: FloatArray, draws: NDArray[np.intp], seed: int) -> list[_Sample | None]:
    """Tests differences before they are corrected. ``values``: differences question by question, shape (rows,
    questions); ``draws``: the context of each question."""
    clusters, places = np.unique(draws, return_inverse=True)
    of_cluster = (places[:, None] == np.arange(len(clusters))).astype(np.float64)
    sums, counts = values @ of_cluster, of_cluster.sum(axis=0)
    held = subsets(len(clusters), seed)
    means = np.round(sums @ held.T / (counts @ held.T), DIGITS)
    parts = values.mean(axis=1), Tails.of(means), two_sided_p(means), np.round(spread_of(sums, counts), DIGITS)
    return [
        _Sample(float(mean), tails, float(p), len(clusters), float(spread))
        for mean, tails, p, spread in zip(*parts, strict=True)
    ]


def _of_shares(
    values: FloatArray,
    over: FloatArray,
    pairs: tuple[NDArray[np.intp], NDArray[np.intp]],
    draws: NDArray[np.intp],
    seed: int,
) -> list[_Sample | None]:
    """Returns the differences of two shares, such as wrong answers over answers given; None where one is over nothing.

    ``values``, ``over``: what is counted and what it is over, of each policy, shape (policies, questions). The
    share of each subset of contexts is taken anew; subsets in which one of the two is over nothing count for either
    side, so that contexts without an answer are no evidence.
    """
    clusters, places = np.unique(draws, return_inverse=True)
    of_cluster = (places[:, None] == np.arange(len(clusters))).astype(np.float64)
    held = subsets(len(clusters), seed).T
    sums, counts = values @ of_cluster, over @ of_cluster
    with np.errstate(invalid="ignore", divide="ignore"):
        share = sums.sum(axis=1) / counts.sum(axis=1)
        of_subsets = (sums @ held) / (counts @ held)
        # To first order a share moves with a context by what is wrong there beyond the share of what is answered there.
        moves = (sums - share[:, None] * counts) / counts.mean(axis=1, keepdims=True)
    one, other = pairs
    means = np.round(of_subsets[one] - of_subsets[other], DIGITS)
    unknown = np.isnan(means)
    low, high = (np.where(unknown, end, means) for end in (-np.inf, np.inf)) if unknown.any() else (means, None)
    spread = np.std(moves[one] - moves[other], axis=1, ddof=1) if len(clusters) > 1 else np.zeros(len(one))
    contexts = ((counts[one] > 0) & (counts[other] > 0)).sum(axis=1)
    parts = share[one] - share[other], Tails.of(low, high), two_sided_p(low, high), contexts, np.round(spread, DIGITS)
    return [
        None if np.isnan(mean) else _Sample(float(mean), tails, float(p), int(count), float(detail))
        for mean, tails, p, count, detail in zip(*parts, strict=True)
    ]


def _contests(measure: Compared, cells: Sequence[_Cell]) -> Iterator[Contest]:
    """Corrects over the cells, which are the levels of a task."""
    samples = [cell.samples[measure.name] for cell in cells]
    p = correct_p({place: sample.p for place, sample in enumerate(samples)}, "the levels of a task").p
    levels = step_down_levels(np.array([sample.p for sample in samples])).tolist()
    for place, (cell, sample, alpha) in enumerate(zip(cells, samples, levels, strict=True)):
        interval = sample.tails.interval(alpha)
        low, high = interval if interval and np.isfinite(interval).all() else (None, None)
        opposed = measure is F1 and (cell.only_one - cell.only_other) * sample.mean < 0
        difference = MeanDifference(sample.mean, low, high)
        yield Contest(measure, difference, alpha, p[place], sample.contexts, sample.spread, opposed)


def both(cell: DataFrame, column: str) -> Pair:
    """Returns a column of both as floats, NaN where a question has no such value, as an attack has no hallucination."""
    one, other = (cell[f"{column}{side}"].to_numpy(dtype=np.float64, na_value=np.nan) for side in SIDES)
    return one, other


def difference(cell: DataFrame, pair: Pair, seed: int) -> MeanDifference:
    """Compares a measure over the questions of ``cell``; see :func:`differences`."""
    return differences((pair[0] - pair[1])[None], factorize(cell["draw_id_one"], sort=True)[0], seed)[0]


def differences(values: FloatArray, draws: NDArray[np.intp], seed: int) -> list[MeanDifference]:
    """Returns the mean of each row of ``values``, differences of two policies question by question, shape (rows,
    questions). Questions without a value (NaN) are left out. Contexts are resampled, by their ``draws``, shape
    (questions,)."""
    known = ~np.isnan(values)
    intervals: list[MeanDifference] = [MeanDifference(0.0, None, None)] * len(values)
    for mask in np.unique(known, axis=0):
        if mask.any():
            rows = np.flatnonzero((known == mask).all(axis=1))
            for row, one in zip(rows.tolist(), _means(values[np.ix_(rows, mask)], draws[mask], seed), strict=True):
                intervals[row] = one
    return intervals


def _means(values: FloatArray, draws: NDArray[np.intp], seed: int) -> list[MeanDifference]:
    """Returns the same where all have a value; without an interval from so few contexts that nothing can be told."""
    means = values.mean(axis=1).tolist()
    clusters, places = np.unique(draws, return_inverse=True)
    if len(clusters) < fewest_clusters():
        return [MeanDifference(mean, None, None) for mean in means]
    of_cluster = (places[:, None] == np.arange(len(clusters))).astype(np.float64)
    weights = cluster_weights(len(clusters), seed, RESAMPLES)
    resampled = (values @ of_cluster) @ weights.T / (of_cluster.sum(axis=0) @ weights.T)
    lows, highs = percentile_intervals(np.round(resampled, DIGITS))
    return [MeanDifference(*one) for one in zip(means, lows.tolist(), highs.tolist(), strict=True)]
