"""Two policies on the same questions: what they are compared by, the tables of their answers, whose rows can be
subtracted, and what is found of them in a cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate import row
from leaderboards.metrics import Measure
from leaderboards.statistics.bootstrap import DIGITS, FloatArray, percentile_interval
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.significance import ALPHA, mcnemar_p, smallest_detectable
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

Verdict = Literal["better", "worse", "not distinguished"]
UNDECIDED: Verdict = "not distinguished"
POINTS = "points"  # of percent: the unit of all differences that are shown or written
MORE = 4  # times as many contexts are named beside what cannot be seen: they see half of it


CELL = ["task", "level"]
QUESTION = ["mode", "example_id", "question_id"]
DEFENDED = "defended_leakage"  # leakage where a defence stands in the prompt: without one there is nothing to keep
MEASURES = ("right", "hallucinated", "answered", "directives_obeyed", DEFENDED, "next_token_accuracy")


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

    @property
    def direction(self) -> str:
        """Says which end is better, for a heading."""
        return f"{self.measure.better} is better"

    def sides(self, values: FloatArray) -> tuple[float, float]:
        """Returns what two policies have, as the column has it, in the unit of the measure."""
        one, other = (self.factor * values).tolist()
        return one, other


RIGHT = Compared("right", row.RIGHT, "right", 100)
HALLUCINATION = Compared("hallucinated", row.HALLUCINATION, "hallucination", 100)
WRONG = Compared(
    *("wrong_of_answered", row.WRONG_OF_ANSWERED, "wrong of answered", 100), of="hallucinated", over="answered"
)
OBEYED = Compared("directives_obeyed", row.OBEYED, "obeyed", 100)
LEAKED = Compared(DEFENDED, row.LEAKAGE, "leakage", 100)
NEXT_TOKENS = Compared("next_token_accuracy", row.NEXT_TOKENS, "next tokens", 100)
# The first that a cell has gives its verdict. The hallucination rate is the last: it falls where a model falls silent.
COMPARED = {one.name: one for one in (OBEYED, LEAKED, RIGHT, NEXT_TOKENS, WRONG, HALLUCINATION)}


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
    sides: tuple[float, float]  # what either has, in the unit of the measure

    @property
    def verdict(self) -> Verdict:
        """Says better or worse where the corrected p is below 0.05."""
        if self.p >= ALPHA or not self.difference.is_clear:
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
    def sides_text(self) -> str:
        """Writes what either has, such as "62 against 39"."""
        return "{:.0f} against {:.0f}".format(*self.sides)

    @property
    def explanation(self) -> str:
        """Writes the verdict, and why it is none."""
        if self.verdict != UNDECIDED:
            return self.verdict
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
        """Returns the contest that gives the verdict: directives obeyed where the task has directives, else what is
        right."""
        return next(self.contests[name] for name in COMPARED if name in self.contests)

    @property
    def verdict(self) -> Verdict:
        return self.lead.verdict

    @property
    def p_of_mcnemar(self) -> float:
        """Returns McNemar's p of the questions that just one has right. It takes questions for independent, is not
        corrected, and decides nothing."""
        return mcnemar_p(self.only_one, self.only_other)


@dataclass(frozen=True)
class AnswerTable:
    """The policies without a failed answer at one level of a task. The full cache, which has one level, is there at
    each."""

    task: str
    level: Level
    ratio: float  # the mean share of a context that the level asks to remove; NaN where it is not known
    policies: Sequence[str]
    there: NDArray[np.bool_]  # whether a policy has an answer, shape (policies, questions)
    # By measure, the means over the draws of a random policy, of the same shape; NaN where there is no value, as an
    # attack has no hallucination.
    values: Mapping[str, FloatArray]
    first_right: NDArray[np.bool_]  # whether the answer of the first draw is right, of the same shape
    draws: NDArray[np.intp]  # of each question, shape (questions,): contexts that were drawn together have the same
    contexts: NDArray[np.intp]  # of each question, as numbers


def answer_tables(records: DataFrame) -> list[AnswerTable]:
    """Makes a table for each task and level, in the order in which they appear; questions in an order of their own."""
    identity = ["mode", "task", "policy", "level_kind", "level", "repeat", "ratio", "status", "draw_id", *QUESTION[1:]]
    defended = records["leakage"].where(records["defence"].astype(str) != "")
    sound = sound_cells(records.assign(**{DEFENDED: defended})[[*identity, *MEASURES]])
    tables = []
    for task, records_of_task in sound.groupby("task", sort=False, observed=True):
        places = records_of_task.groupby(QUESTION, sort=True, observed=True).ngroup().to_numpy()
        first = np.unique(places, return_index=True)[1]  # the record of each question that is met first
        draws, contexts = (
            factorize(records_of_task[name].to_numpy()[first], sort=True)[0] for name in ("draw_id", "example_id")
        )
        policies, names = factorize(records_of_task["policy"].astype(str))
        values = {name: records_of_task[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in MEASURES}
        codes, levels = factorize(records_of_task["level"])
        drawn_first = records_of_task["repeat"].eq(0).to_numpy()
        full = records_of_task["policy"].eq(FULL).to_numpy() & (levels[codes] == UNTREATED)
        ratios = records_of_task["ratio"].to_numpy(dtype=np.float64, na_value=np.nan)
        for code, level in enumerate(levels):
            here = full | (codes == code)
            shape = len(names), len(first)
            cells = np.ravel_multi_index((policies, places), shape)
            of_all = {name: _means(cells[here], values[name][here], shape) for name in MEASURES}
            right = _means(cells[here & drawn_first], values["right"][here & drawn_first], shape) > 0
            there = np.bincount(cells[here], minlength=shape[0] * shape[1]).reshape(shape) > 0
            ratio = float(ratios[codes == code].mean())
            tables.append(AnswerTable(str(task), level, ratio, list(names), there, of_all, right, draws, contexts))
    return tables


def _means(cells: NDArray[np.intp], values: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Returns the mean of the values of each cell, NaN where there is none."""
    size = shape[0] * shape[1]
    with np.errstate(invalid="ignore"):
        means: FloatArray = np.bincount(cells, values, size) / np.bincount(cells, minlength=size)
    return means.reshape(shape)


def sound_cells(records: DataFrame) -> DataFrame:
    """Returns the records with their levels, without the cells in which an answer failed."""
    records = with_levels(records)
    failed = set(records[records["status"] != "ok"].groupby(["policy", *CELL], observed=True).groups)
    if not failed:
        return records
    cells = zip(records["policy"], records["task"], records["level"], strict=True)
    return records[np.array([cell not in failed for cell in cells], dtype=bool)]
