"""Compares two policies on the same questions, cell by cell: the difference, its interval, and
whether it is more than chance.

Questions about one context are not independent, so contexts are what is drawn: a cell's difference
is tested by the means of random subsets of its contexts, which is exact also for few of them. The
levels of a task are one family, corrected by Holm's method, and the interval that is shown is that
of the corrected test: it leaves out 0 where the verdict says so. Where nothing is told, it is at
least as wide as the interval of a paired loss, which has width also where two policies do not
differ in any context. The draws of a random policy are averaged question by question before
anything is subtracted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate.attacks import enters_means
from leaderboards.aggregate.pairing import HELD, levels_by_policy, with_held
from leaderboards.aggregate.row import LEAKAGE, NEXT_TOKENS, OBEYED, RIGHT
from leaderboards.errors import LeaderboardError
from leaderboards.metrics import Measure
from leaderboards.statistics.bootstrap import DIGITS, FloatArray, task_seed
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.context_sums import context_values, sum_by_context
from leaderboards.statistics.corrections import holm
from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import (
    MeanDifference,
    PairedDifference,
    SubsetTest,
)
from policies.declaration.levels import UNTREATED, Level, level_of_side, shared_levels
from policies.declaration.names import FULL

Verdict = Literal["better", "worse", "not distinguished"]
UNDECIDED: Verdict = "not distinguished"
POINTS_OF_ONE = 100.0  # points of percent
POINTS = "points"  # of percent: the unit of all differences that are shown or written

CELL = ["task", "level"]
QUESTION = ["mode", "example_id", "question_id"]
# Leakage where a defence stands in the prompt: without one there is nothing to keep.
DEFENDED = "defended_leakage"


# What two policies are compared by, in percent, by column of the answers; the first of a cell gives
# its verdict.
COMPARED: Mapping[str, Measure] = {
    "directives_obeyed": OBEYED,
    DEFENDED: LEAKAGE,
    "right": RIGHT,
    "next_token_accuracy": NEXT_TOKENS,
}


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
        """Tells who is better: nobody where p is too high, or the interval holds 0."""
        if self.p >= ALPHA or not self.difference.is_clear:
            return UNDECIDED
        is_lower = self.difference.mean < 0
        is_good = is_lower == (self.measure.better == "lower")
        return "better" if is_good else "worse"


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
    # The bytes that either holds, in percent of the full cache.
    bytes_held: tuple[float | None, float | None]

    @property
    def lead(self) -> Contest:
        """Returns the contest that gives the verdict: directives obeyed where there are any, else
        what is right."""
        return next(self.contests[name] for name in COMPARED if name in self.contests)

    @property
    def verdict(self) -> Verdict:
        """Returns the verdict of the leading contest."""
        return self.lead.verdict


@dataclass(frozen=True)
class AnswerTable:
    """The policies without a failed answer at one level of a task; the full cache is there at
    each."""

    task: str
    level: Level
    policies: Sequence[str]
    there: NDArray[np.bool_]  # whether a policy has an answer, shape (policies, questions)
    # By measure, in percent, the means over the draws of a random policy, of the same shape; NaN
    # where there is no value, as an attack is not right or wrong.
    values: Mapping[str, FloatArray]
    realised: FloatArray  # the mean realised ratio of each policy, NaN where it is not known
    # Of each question, shape (questions,): contexts that were drawn together have the same.
    draws: NDArray[np.intp]
    contexts: NDArray[np.intp]  # of each question, as numbers
    run_at: Mapping[str, frozenset[Level]]  # the levels of each policy, in any task
    # The mean percent of the full cache's bytes that each policy holds; none on a board.
    held: Mapping[str, float]

    @cached_property
    def known(self) -> frozenset[str]:
        """Names the measures that some answer has a value of."""
        return frozenset(name for name, values in self.values.items() if not np.isnan(values).all())

    def places(self, *policies: str) -> list[int]:
        """Returns the places of some policies in the first axis of the arrays."""
        return [self.policies.index(name) for name in policies]

    def of(self, column: str, *policies: str) -> FloatArray:
        """Returns the values of some policies, shape (policies, questions)."""
        return self.values[column][self.places(*policies)]

    def is_shared(self, pair: tuple[str, str], measures: Sequence[str] = tuple(COMPARED)) -> bool:
        """Tells whether the two policies meet at this level, and both have a value of some
        question."""
        policy, other = pair
        if policy not in self.policies or other not in self.policies:
            return False
        if self.level not in shared_levels(self.run_at[policy], self.run_at[other]):
            return False
        for measure in measures:
            # On the same question: a policy may have a value where the other one has none.
            has_none = np.isnan(self.of(measure, *pair)).any(axis=0)
            if not has_none.all():
                return True
        return False

    def run_levels(self, pair: tuple[str, str]) -> tuple[Level, Level]:
        """Returns the level at which each of two policies was run that meet here."""
        policy, other = pair
        level_of_policy = level_of_side(self.level, self.run_at[policy])
        level_of_other = level_of_side(self.level, self.run_at[other])
        return level_of_policy, level_of_other

    def held_by(self, pair: tuple[str, str]) -> tuple[float | None, float | None]:
        """Returns the bytes that each of two policies holds, in percent of the full cache; None
        where they were not counted."""
        policy, other = pair
        return self._percent_held(policy), self._percent_held(other)

    def _percent_held(self, policy: str) -> float | None:
        percent = self.held.get(policy, np.nan)
        if np.isnan(percent):
            return None
        return percent


def answer_tables(records: DataFrame, comparing: bool = False) -> list[AnswerTable]:
    """Makes a table for each task and level, in the order in which they appear; questions in an
    order of their own. ``comparing``: whether a policy of one level stands in the tables of all
    levels of other kinds, as the full cache does, and the bytes that are held are counted. A board,
    whose rows are compared at equal levels alone, does not."""
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
    is_defended = records["defence"].astype(str) != ""
    leakage = records["leakage"].where(is_defended).where(enters_means(records))
    judged = records.assign(**{DEFENDED: leakage})
    # A cell with a failure goes as a whole: a mean over what did not fail would be of other
    # questions.
    sound = _sound_cells(judged[[*identity, *COMPARED]])
    tables = []
    for task, of_task in sound.groupby("task", sort=False, observed=True):
        codes, levels = factorize(of_task["level"])
        answers = _TaskAnswers.read(of_task, comparing)
        for code, level in enumerate(levels):
            # What is the same at every level stands in the table of each.
            everywhere = [FULL]
            if comparing:
                everywhere += [name for name in answers.names if _stands_at(level, run_at[name])]
            here = (codes == code) | of_task["policy"].isin(everywhere).to_numpy()
            tables.append(answers.table(str(task), level, here, run_at))
    return tables


@dataclass(frozen=True)
class _TaskAnswers:
    """Holds the sound answers of a task as columns of numbers, each of shape (answers,)."""

    names: Sequence[str]  # of the policies
    policies: NDArray[np.intp]  # of each answer, its place among the names
    questions: NDArray[np.intp]  # of each answer, as numbers
    numbers: Mapping[str, FloatArray]  # by column, NaN where an answer has none
    draws: NDArray[np.intp]  # of each question, shape (questions,)
    contexts: NDArray[np.intp]  # of each question

    @classmethod
    def read(cls, records: DataFrame, comparing: bool) -> Self:
        """Reads the columns of the records of one task. ``comparing``: with the bytes that are
        held."""
        # Sorted, so that the order of the records does not matter.
        questions = records.groupby(QUESTION, sort=True, observed=True).ngroup().to_numpy()
        # Draw and context are the same in all records of a question.
        first = np.unique(questions, return_index=True)[1]  # the first record of each question
        draws = factorize(records["draw_id"].to_numpy()[first], sort=True)[0]
        contexts = factorize(records["example_id"].to_numpy()[first], sort=True)[0]
        policies, names = factorize(records["policy"].astype(str))
        columns = [*COMPARED, "realised_ratio"]
        if comparing:
            columns.append(HELD)
        numbers = {}
        for name in columns:
            numbers[name] = records[name].to_numpy(dtype=np.float64, na_value=np.nan)
        return cls(list(names), policies, questions, numbers, draws, contexts)

    def table(
        self,
        task: str,
        level: Level,
        here: NDArray[np.bool_],
        run_at: Mapping[str, frozenset[Level]],
    ) -> AnswerTable:
        """Makes the table of a level. ``here``: which answers stand in it, shape (answers,)."""
        shape = len(self.names), len(self.draws)
        # A number for each pair of policy and question, by which the draws of a random policy are
        # averaged before anything is compared.
        cells = np.ravel_multi_index((self.policies, self.questions), shape)[here]
        counts = np.bincount(cells, minlength=shape[0] * shape[1])
        values = {}
        for name in COMPARED:
            values[name] = 100 * _means(cells, self.numbers[name][here], shape)
        held = {}
        if HELD in self.numbers:
            held = dict(zip(self.names, self._means_of_policies(HELD, here).tolist(), strict=True))
        return AnswerTable(
            task,
            level,
            self.names,
            there=counts.reshape(shape) > 0,
            values=values,
            realised=self._means_of_policies("realised_ratio", here),
            draws=self.draws,
            contexts=self.contexts,
            run_at=run_at,
            held=held,
        )

    def _means_of_policies(self, name: str, here: NDArray[np.bool_]) -> FloatArray:
        """Averages a number of some answers by policy, shape (policies,)."""
        means = _means(self.policies[here], self.numbers[name][here], (len(self.names), 1))
        return means[:, 0]


def _stands_at(level: Level, run_at: frozenset[Level]) -> bool:
    """Tells whether a policy of these levels is the same at a level of another one: it has a single
    level of another kind, or none."""
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
    failures = records[records["status"] != "ok"]
    failed = set(failures.groupby(["policy", *CELL], observed=True).groups)
    if not failed:
        return records
    cells = zip(records["policy"], records["task"], records["level"], strict=True)
    is_sound = [cell not in failed for cell in cells]
    return records[np.array(is_sound, dtype=bool)]


def duels(records: DataFrame, policy: str, others: Sequence[str], seed: int = 0) -> list[Duel]:
    """Compares the policy with each of the others, at every task and level that both have in full;
    each p is corrected over the levels of the task.

    Raises :class:`LeaderboardError` where they have no complete cell in common."""
    # With the full cache, of whose bytes those of the others are a percentage.
    compared = records[records["policy"].isin((policy, *others, FULL))]
    by_task: dict[str, list[AnswerTable]] = {}
    for table in answer_tables(compared, comparing=True):
        by_task.setdefault(table.task, []).append(table)
    pairs: list[Duel] = []
    for other in others:
        for task, levels in by_task.items():
            # The seed of a task is that of its rows: a mark and a verdict shall not differ by
            # chance.
            pairs += _duels_of_task(levels, (policy, other), task_seed(seed, task))
    if not pairs:
        names = f"{policy} and {', '.join(others)}"
        raise LeaderboardError(f"{names} have no cell in common that is complete")
    return pairs


def _duels_of_task(
    levels: Sequence[AnswerTable], pair: tuple[str, str], seed: int
) -> Iterator[Duel]:
    cells = [table for table in levels if table.is_shared(pair)]
    contests: list[dict[str, Contest]] = [{} for _ in cells]
    for name, measure in COMPARED.items():
        for place, contest in _contests(name, measure, cells, pair, seed).items():
            contests[place][name] = contest
    for table, of_cell in zip(cells, contests, strict=True):
        common = table.there[table.places(*pair)].all(axis=0)
        yield Duel(
            *pair,
            table.task,
            table.level,
            questions=int(common.sum()),
            contexts=len(np.unique(table.contexts[common])),
            family=len(cells),
            contests=of_cell,
            run_at=table.run_levels(pair),
            bytes_held=table.held_by(pair),
        )


def _contests(
    name: str, measure: Measure, cells: Sequence[AnswerTable], pair: tuple[str, str], seed: int
) -> dict[int, Contest]:
    """Compares two policies by one measure in the cells that have it, by place of the cell; each p
    is corrected over them."""
    samples: dict[int, _Sample] = {}
    p_values: dict[int, float] = {}
    for place, table in enumerate(cells):
        if table.is_shared(pair, [name]):
            sample = _Sample.of(table, name, pair, seed)
            samples[place] = sample
            p_values[place] = sample.test.p
    contests = {}
    for place, corrected in holm(p_values).items():
        sample = samples[place]
        mean = sample.sides[0] - sample.sides[1]
        tested = sample.test.interval(corrected.alpha)
        low, high = sample.difference.interval(corrected.alpha)
        held = POINTS_OF_ONE * low, POINTS_OF_ONE * high
        contests[place] = Contest(
            measure,
            MeanDifference.widened(mean, tested, held),
            corrected.p,
            sample.difference.contexts,
            sample.sides,
        )
    return contests


@dataclass(frozen=True)
class _Sample:
    """Two policies by one measure in one cell, before anything is corrected."""

    sides: tuple[float, float]  # what either has, in percent
    test: SubsetTest  # of their difference in points
    difference: PairedDifference

    @classmethod
    def of(cls, table: AnswerTable, measure: str, pair: tuple[str, str], seed: int) -> Self:
        """Takes the questions of a table on which both policies have a value."""
        values = table.of(measure, *pair)
        there = ~np.isnan(values).any(axis=0)
        shared = values[:, there]
        # Numbered anew: a draw without a shared question would make subsets without an answer, of
        # which there is no mean.
        draws = np.unique(table.draws[there], return_inverse=True)[1]
        differences = np.subtract(*shared)
        count = int(draws.max()) + 1
        by_context = sum_by_context(differences, draws, count)
        counts = by_context.counts
        first, second = np.round(shared.mean(axis=1), DIGITS).tolist()
        more = sum_by_context(np.maximum(differences, 0), draws, count)
        less = sum_by_context(np.maximum(-differences, 0), draws, count)
        difference = PairedDifference(
            context_values(more.sums / POINTS_OF_ONE, counts),
            context_values(less.sums / POINTS_OF_ONE, counts),
        )
        return cls((first, second), SubsetTest.from_sums(by_context, seed), difference)
