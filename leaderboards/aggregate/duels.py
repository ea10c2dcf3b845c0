"""Compares two policies on the same questions, cell by cell: the difference, its interval, and whether it is more than
chance.

Questions about one context are not independent, so contexts are what is drawn: a cell's difference is tested by the
means of random subsets of its contexts, which is exact also for few of them. The levels of a task are one family,
corrected by Holm's method, and the interval that is shown is that of the corrected test: it leaves out 0 where the
verdict says so. Where nothing is told, it is at least as wide as the interval of a paired loss, which has width also
where two policies do not differ in any context. The draws of a random policy are averaged question by question before
anything is subtracted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate.attacks import enters_means
from leaderboards.aggregate.pairing import HELD, levels_by_policy, with_held
from leaderboards.aggregate.row import LEAKAGE, NEXT_TOKENS, OBEYED, RIGHT
from leaderboards.errors import LeaderboardError
from leaderboards.metrics import Measure
from leaderboards.statistics.bootstrap import DIGITS, Estimate, FloatArray, task_seed
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.intervals import Loss, context_values
from leaderboards.statistics.significance import ALPHA, holm, subset_interval, subsets, two_sided_p
from policies.declaration.levels import UNTREATED, Level, level_of_side, shared_levels
from policies.declaration.names import FULL

Verdict = Literal["better", "worse", "not distinguished"]
UNDECIDED: Verdict = "not distinguished"
POINTS_OF_ONE = 100.0  # points of percent
POINTS = "points"  # of percent: the unit of all differences that are shown or written

CELL = ["task", "level"]
QUESTION = ["mode", "example_id", "question_id"]
DEFENDED = "defended_leakage"  # leakage where a defence stands in the prompt: without one there is nothing to keep


# What two policies are compared by, in percent, by column of the answers; the first of a cell gives its verdict.
COMPARED: Mapping[str, Measure] = {
    "directives_obeyed": OBEYED,
    DEFENDED: LEAKAGE,
    "right": RIGHT,
    "next_token_accuracy": NEXT_TOKENS,
}


@dataclass(frozen=True)
class MeanDifference:
    """The mean difference of a measure in points, and its 95 % interval."""

    mean: float
    low: float | None  # None from too few contexts, and where resamples have no value
    high: float | None

    @classmethod
    def of(cls, estimate: Estimate, times: float = 1.0) -> Self:
        """Makes one of an estimated difference, which may have to be multiplied into points."""
        low, high = (None if end is None else times * end for end in (estimate.low, estimate.high))
        return cls(times * estimate.mean, low, high)

    @classmethod
    def widened(
        cls, mean: float, tested: tuple[float, float] | None, held: tuple[float, float]
    ) -> Self:
        """Makes one with the interval of a test; where that is not clear, it reaches as far as the interval that is
        ``held`` also where nothing differs. A test of so few contexts that it has no interval leaves it out here."""
        if tested is None or not tested[0] <= 0 <= tested[1]:
            return cls(mean, *(tested or (None, None)))
        return cls(mean, min(tested[0], held[0]), max(tested[1], held[1]))

    @property
    def is_clear(self) -> bool:  # the interval leaves out 0
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def text(self) -> str:
        """Writes ``+12 [+3, +20]``, with as many digits, up to two, as tell its ends from 0."""
        if self.low is None or self.high is None:
            return _signed(self.mean, 0)
        nearest = min(abs(self.low), abs(self.high))
        digits = 0 if nearest >= 0.5 or nearest < 0.005 else 1 if nearest >= 0.05 else 2
        mean, low, high = (_signed(one, digits) for one in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"


def _signed(number: float, digits: int) -> str:
    """Writes a number with its sign, the typographic minus; what is rounded to zero has none."""
    text = f"{number:+z.{digits}f}"
    return text.removeprefix("+") if not float(text) else text.replace("-", "−")


@dataclass(frozen=True)
class Contest:
    """Two policies by one measure in one cell."""

    measure: Measure
    difference: (
        MeanDifference  # this one minus the other; its interval is that of the corrected test
    )
    p: float  # of the means of subsets, corrected over the levels of the task
    contexts: int  # that have a value
    sides: tuple[float, float]  # what either has

    @property
    def verdict(self) -> Verdict:
        if self.p >= ALPHA or not self.difference.is_clear:
            return UNDECIDED
        return (
            "better" if (self.difference.mean < 0) == (self.measure.better == "lower") else "worse"
        )


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
    run_at: tuple[Level, Level]  # the level of either, of which one may be the only one that it has
    bytes_held: tuple[
        float | None, float | None
    ]  # the bytes that either holds, in percent of the full cache

    @property
    def lead(self) -> Contest:
        """Returns the contest that gives the verdict: directives obeyed where there are any, else what is right."""
        return next(self.contests[name] for name in COMPARED if name in self.contests)

    @property
    def verdict(self) -> Verdict:
        return self.lead.verdict


@dataclass(frozen=True)
class AnswerTable:
    """The policies without a failed answer at one level of a task; the full cache is there at each."""

    task: str
    level: Level
    policies: Sequence[str]
    there: NDArray[np.bool_]  # whether a policy has an answer, shape (policies, questions)
    # By measure, in percent, the means over the draws of a random policy, of the same shape; NaN where there is no
    # value, as an attack is not right or wrong.
    values: Mapping[str, FloatArray]
    realised: FloatArray  # the mean realised ratio of each policy, NaN where it is not known
    draws: NDArray[
        np.intp
    ]  # of each question, shape (questions,): contexts that were drawn together have the same
    contexts: NDArray[np.intp]  # of each question, as numbers
    run_at: Mapping[str, frozenset[Level]]  # the levels of each policy, in any task
    held: Mapping[
        str, float
    ]  # the mean percent of the full cache's bytes that each policy holds; none on a board

    @cached_property
    def known(self) -> frozenset[str]:  # the measures that some answer has a value of
        return frozenset(name for name, values in self.values.items() if not np.isnan(values).all())

    def places(self, *policies: str) -> list[int]:
        return [self.policies.index(name) for name in policies]

    def of(self, column: str, *policies: str) -> FloatArray:
        """Returns the values of some policies, shape (policies, questions)."""
        return self.values[column][self.places(*policies)]

    def is_shared(self, pair: tuple[str, str], measures: Sequence[str] = tuple(COMPARED)) -> bool:
        """Tells whether the two policies meet at this level, and both have a value of some question."""
        if not set(pair) <= set(self.policies) or self.level not in shared_levels(
            *self._levels_of(pair)
        ):
            return False
        return any(not np.isnan(self.of(one, *pair)).any(axis=0).all() for one in measures)

    def _levels_of(self, pair: tuple[str, str]) -> tuple[frozenset[Level], frozenset[Level]]:
        return self.run_at[pair[0]], self.run_at[pair[1]]

    def levels_of(self, pair: tuple[str, str]) -> tuple[Level, Level]:
        """Returns the level at which each of two policies was run that meet here."""
        one, other = (level_of_side(self.level, levels) for levels in self._levels_of(pair))
        return one, other

    def held_by(self, pair: tuple[str, str]) -> tuple[float | None, float | None]:
        """Returns the bytes that each of two policies holds, in percent of the full cache."""
        one, other = (
            None if np.isnan(held := self.held.get(name, np.nan)) else held for name in pair
        )
        return one, other


def answer_tables(records: DataFrame, comparing: bool = False) -> list[AnswerTable]:
    """Makes a table for each task and level, in the order in which they appear; questions in an order of their own.
    ``comparing``: whether a policy of one level stands in the tables of all levels of other kinds, as the full cache
    does, and the bytes that are held are counted. A board, whose rows are compared at equal levels alone, does not."""
    identity = [
        "task",
        "policy",
        "level_kind",
        "level",
        "status",
        "draw_id",
        "realised_ratio",
        *QUESTION,
    ]
    run_at = levels_by_policy(records)
    if comparing:
        records, identity = with_held(records), [*identity, HELD]
    defended = (
        records["leakage"].where(records["defence"].astype(str) != "").where(enters_means(records))
    )
    sound = _sound_cells(records.assign(**{DEFENDED: defended})[[*identity, *COMPARED]])
    tables = []
    for task, of_task in sound.groupby("task", sort=False, observed=True):
        places = of_task.groupby(QUESTION, sort=True, observed=True).ngroup().to_numpy()
        first = np.unique(places, return_index=True)[
            1
        ]  # the record of each question that is met first
        draws, contexts = (
            factorize(of_task[name].to_numpy()[first], sort=True)[0]
            for name in ("draw_id", QUESTION[1])
        )
        policies, names = factorize(of_task["policy"].astype(str))
        counted = [*COMPARED, "realised_ratio", *([HELD] if comparing else [])]
        numbers = {
            name: of_task[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in counted
        }
        codes, levels = factorize(of_task["level"])
        for code, level in enumerate(levels):
            spread = [
                name
                for name in names
                if name == FULL or (comparing and _stands_at(level, run_at[name]))
            ]
            here = (codes == code) | of_task["policy"].isin(spread).to_numpy()
            shape = len(names), len(first)
            cells = np.ravel_multi_index((policies, places), shape)[here]
            means = {name: _means(cells, values[here], shape) for name, values in numbers.items()}
            there = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape) > 0
            of_policies = {
                name: _means(policies[here], numbers[name][here], (len(names), 1))[:, 0]
                for name in counted[len(COMPARED) :]
            }
            values = {name: 100 * means[name] for name in COMPARED}
            held = dict(zip(names, of_policies[HELD].tolist(), strict=True)) if comparing else {}
            of_questions = (there, values, of_policies["realised_ratio"], draws, contexts)
            tables.append(AnswerTable(str(task), level, list(names), *of_questions, run_at, held))
    return tables


def _stands_at(level: Level, run_at: frozenset[Level]) -> bool:
    """Tells whether a policy of these levels is the same at a level of another one: it has a single level of another
    kind, or none."""
    (only, *more) = run_at
    return not more and (only == UNTREATED or only.kind != level.kind)


def _means(cells: NDArray[np.intp], values: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Returns the mean of the values of each cell, NaN where there is none."""
    size = shape[0] * shape[1]
    with np.errstate(invalid="ignore"):
        means: FloatArray = np.bincount(cells, values, size) / np.bincount(cells, minlength=size)
    return means.reshape(shape)


def _sound_cells(records: DataFrame) -> DataFrame:
    """Returns the records with their levels, without the cells in which an answer failed."""
    records = with_levels(records)
    failed = set(
        records[records["status"] != "ok"].groupby(["policy", *CELL], observed=True).groups
    )
    if not failed:
        return records
    cells = zip(records["policy"], records["task"], records["level"], strict=True)
    return records[np.array([cell not in failed for cell in cells], dtype=bool)]


def duels(records: DataFrame, policy: str, others: Sequence[str], seed: int = 0) -> list[Duel]:
    """Compares the policy with each of the others, at every task and level that both have in full; each p is corrected
    over the levels of the task."""
    tables = answer_tables(records[records["policy"].isin((policy, *others, FULL))], comparing=True)
    by_task = [(task, list(levels)) for task, levels in groupby(tables, lambda table: table.task)]
    # The seed of a task is that of its rows: a mark and a verdict shall not differ by chance.
    found = [
        duel
        for other in others
        for task, levels in by_task
        for duel in _duels_of_task(levels, (policy, other), task_seed(seed, task))
    ]
    if not found:
        raise LeaderboardError(
            f"{policy} and {', '.join(others)} have no cell in common that is complete"
        )
    return found


def _duels_of_task(
    levels: Sequence[AnswerTable], pair: tuple[str, str], seed: int
) -> Iterator[Duel]:
    cells = [table for table in levels if table.is_shared(pair)]
    contests: list[dict[str, Contest]] = [{} for _ in cells]
    for name, measure in COMPARED.items():
        samples = {
            place: _Sample.of(table, name, pair, seed)
            for place, table in enumerate(cells)
            if table.is_shared(pair, [name])
        }
        p_values = {place: two_sided_p(sample.subset_means) for place, sample in samples.items()}
        for place, corrected in holm(p_values).items():
            sample = samples[place]
            tested = subset_interval(sample.subset_means, corrected.alpha)
            held = sample.difference.interval(corrected.alpha)
            mean = sample.sides[0] - sample.sides[1]
            difference = MeanDifference.widened(
                mean, tested, (POINTS_OF_ONE * held[0], POINTS_OF_ONE * held[1])
            )
            contexts = sample.difference.contexts
            contests[place][name] = Contest(
                measure, difference, corrected.p, contexts, sample.sides
            )
    for table, of_cell in zip(cells, contests, strict=True):
        common = table.there[table.places(*pair)].all(axis=0)
        counts = int(common.sum()), len(np.unique(table.contexts[common])), len(cells)
        yield Duel(
            *pair,
            table.task,
            table.level,
            *counts,
            of_cell,
            table.levels_of(pair),
            table.held_by(pair),
        )


@dataclass(frozen=True)
class _Sample:
    """Two policies by one measure in one cell, before anything is corrected."""

    sides: tuple[float, float]  # what either has, in percent
    subset_means: FloatArray  # their difference in each subset of contexts, in points
    difference: Loss  # what the first has more is lost, and what it has less is gained

    @classmethod
    def of(cls, table: AnswerTable, measure: str, pair: tuple[str, str], seed: int) -> Self:
        values = table.of(measure, *pair)
        there = ~np.isnan(values).any(axis=0)
        draws = np.unique(table.draws[there], return_inverse=True)[1]
        differences = np.subtract(*values[:, there])
        sums = np.bincount(draws, differences).astype(np.float64)
        counts = np.bincount(draws).astype(np.float64)
        held = subsets(len(counts), seed)
        one, other = np.round(values[:, there].mean(axis=1), DIGITS).tolist()
        more, less = (
            context_values(np.bincount(draws, np.maximum(part, 0)) / POINTS_OF_ONE, counts)
            for part in (differences, -differences)
        )
        return cls(
            (one, other), np.round((held @ sums) / (held @ counts), DIGITS), Loss(more, less)
        )
