"""Compares two policies over all cells that both have: the area under a measure, by one test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from scipy.special import ndtri

from leaderboards.aggregate.answer_tables import AnswerTable, answer_tables
from leaderboards.aggregate.paired import (
    COMPARED,
    F1,
    LEAKED,
    MORE,
    OBEYED,
    UNDECIDED,
    WRONG,
    Compared,
    Difference,
    Duel,
    Verdict,
    explain_undistinguished,
)
from leaderboards.statistics.bootstrap import DIGITS, FloatArray, resampled_means, task_seed
from leaderboards.statistics.significance import ALPHA, POWER, bootstrap_p, correct_p, interval_of_test, p_text
from leaderboards.statistics.subset_means import fewest_clusters, step_down_levels
from policies.declaration.levels import Level

WORST = 3  # cells named in a line


@dataclass(frozen=True)
class JudgedCell:
    """A task and level with the verdict that it has by itself."""

    task: str
    level: Level
    difference: float  # in the unit of the measure
    verdict: Verdict

    @property
    def text(self) -> str:
        return f"{self.task} at {self.level} ({self.difference:+z.0f})"


@dataclass(frozen=True)
class Pooled:
    """The difference of one policy from another over all tasks by one measure."""

    policy: str
    other: str
    measure: Compared
    difference: Difference  # of the areas; its interval is that of the corrected test
    alpha: float  # the level at which Holm's method tests it
    p: float  # corrected over the family
    family: int  # pooled tests of the comparison: a line for each opponent and measure
    tasks: int
    cells: int
    contexts: int  # of all tasks together
    limit: int  # contexts of the task that has most
    differing: int  # contexts in which the two differ at all
    error: float  # the standard error, from the resamples
    answered: tuple[float, float] | None = None  # of a share: in percent of the questions, what either answers
    judged: tuple[JudgedCell, ...] = ()  # the cells that it pools
    span: str = ""  # the asked levels that it is over

    @property
    def verdict(self) -> Verdict:
        """Says better or worse where the interval leaves out 0 and p is below 0.05; never where the two differ in fewer
        than 6 contexts, which chance alone may put on one side."""
        if self.p >= ALPHA or not self.difference.is_clear or self.differing < fewest_clusters():
            return UNDECIDED
        return "better" if (self.difference.mean < 0) == self.measure.lower_is_better else "worse"

    @property
    def smallest(self) -> float | None:
        """Returns the smallest true difference that is told from 0 four times in five, in the unit of the measure."""
        return self._smallest_with(1)

    def _smallest_with(self, times: int) -> float | None:
        """Returns the smallest true difference with so many times the contexts."""
        if times * self.contexts < fewest_clusters() or not self.error:
            return None
        quantiles = float(ndtri(1 - self.alpha / 2) + ndtri(POWER))
        return float(quantiles * self.error / math.sqrt(times) * self.measure.factor)

    @property
    def explanation(self) -> str:
        """Writes the verdict, and why it is none."""
        if self.verdict != UNDECIDED:
            return self.verdict
        if not self.differing:
            return f"{UNDECIDED} (the same in all of n = {self.n})"
        if self._too_few_differ:
            return f"{UNDECIDED} (they differ in {self.differing} of n = {self.n}, {fewest_clusters()} are needed)"
        return explain_undistinguished(self.n, self.smallest, self._smallest_with(MORE), self.limit)

    @property
    def n(self) -> str:
        """Writes the number of contexts, and of how many tasks they are: ``--limit`` counts those of one task."""
        if self.tasks == 1:
            return str(self.contexts)
        each = f" x {self.limit}" if self.tasks * self.limit == self.contexts else ""
        return f"{self.contexts} ({self.tasks} tasks{each})"

    @property
    def _too_few_differ(self) -> bool:
        """Tells whether no test is possible: its p and interval mean nothing then."""
        return self.verdict == UNDECIDED and self.p < ALPHA

    @property
    def sentence(self) -> str:
        """Writes the whole result in one line."""
        cells = "the one shared cell" if self.cells == 1 else f"all {self.cells} shared cells"
        over = f"{self.measure.title} over {cells}{', ' * bool(self.span)}{self.span}"
        family = f" (Holm over {self.family})" if self.family > 1 else ""
        if self._too_few_differ:
            return (
                f"{over}: {Difference(self.difference.mean, None, None).text(self.measure.factor)}: {self.explanation}"
            )
        numbers = f"{self.difference.text(self.measure.factor)}, p {p_text(self.p)}{family}"
        return f"{over}: {numbers}: {self.explanation}{self._by_cell}{self._of_answers}"

    @property
    def _of_answers(self) -> str:
        """Says how much either answers: of fewer answers a smaller share may be wrong, and no question gains by it."""
        return f"; it answers {self.answered[0]:.0f} %, the other {self.answered[1]:.0f} %" if self.answered else ""

    @property
    def _by_cell(self) -> str:
        """Says where single cells are clear, and names the worst: a policy may be better on the whole and clearly worse
        somewhere."""
        if not self.judged:
            return ""
        better = sum(cell.verdict == "better" for cell in self.judged)
        worse = self.worse_cells
        names = ", ".join(cell.text for cell in worse[:WORST]) + (" and others" if len(worse) > WORST else "")
        return f"; of the cells better in {better}, worse in {len(worse)}{f': {names}' if worse else ''}"

    @property
    def worse_cells(self) -> list[JudgedCell]:
        """Lists the cells in which the policy is worse, the largest difference first."""
        worse = [cell for cell in self.judged if cell.verdict == "worse"]
        return sorted(worse, key=lambda cell: -abs(cell.difference))


def pool(records: DataFrame, policy: str, others: Sequence[str], seed: int = 0) -> list[Pooled]:
    """Compares the policy with each of the others: by F1 over the tasks that are judged by it, and by directives obeyed
    and leakage under a defence over those that have directives. All p are corrected together by Holm's method. None of
    no records."""
    of_policies = records[records["policy"].isin((policy, *others))]
    tables = answer_tables(of_policies) if len(of_policies) else []
    shares = (
        _pool([table for table in tables if measure in _leads(table)], (policy, other), measure, seed)
        for other in others
        for measure in COMPARED.values()
    )
    return _correct([one for one in shares if one is not None])


def with_cells(lines: Sequence[Pooled], duels: Sequence[Duel]) -> list[Pooled]:
    """Gives each line the cells that it pools, with the verdict of each."""

    def judged(one: Pooled) -> tuple[JudgedCell, ...]:
        name = one.measure.name
        return tuple(
            JudgedCell(duel.task, duel.level, contest.difference.mean * contest.measure.factor, contest.verdict)
            for duel in duels
            if duel.other == one.other
            if (contest := duel.contests.get(name)) and one.measure in (LEAKED, WRONG, duel.lead.measure)
        )

    return [replace(one, judged=judged(one)) for one in lines]


def _leads(table: AnswerTable) -> tuple[Compared, ...]:
    """Returns the measures that a task is judged by."""
    known = {name for name, values in table.values.items() if not np.isnan(values).all()}
    led = (OBEYED, LEAKED) if OBEYED.name in known else (F1,) if F1.name in known else ()
    return (*led, WRONG) if WRONG.column in known else led


def _correct(tests: Sequence[tuple[Pooled, FloatArray]]) -> list[Pooled]:
    """Corrects over all of them, and gives each the interval of its test."""
    p = correct_p({place: one.p for place, (one, _) in enumerate(tests)}, "the opponents of a comparison").p
    levels = step_down_levels(np.array([one.p for one, _ in tests])).tolist()
    return [
        replace(one, difference=_with_interval(one, drawn, alpha, p[place]), alpha=alpha, p=p[place], family=len(tests))
        for place, ((one, drawn), alpha) in enumerate(zip(tests, levels, strict=True))
    ]


def _with_interval(one: Pooled, drawn: FloatArray, alpha: float, p: float) -> Difference:
    ends = interval_of_test(drawn, alpha, p) if len(drawn) else (None, None)
    return Difference(one.difference.mean, *ends)


def _pool(
    tables: Sequence[AnswerTable], pair: tuple[str, str], measure: Compared, seed: int
) -> tuple[Pooled, FloatArray] | None:
    """Makes one test before it is corrected, and returns the difference in each resample."""
    shared = [
        table for table in tables if set(pair) <= set(table.policies) and _difference(table, pair, measure)[1].any()
    ]
    areas, resampled, contexts, over, differing = [], [], [], [], 0
    levels: list[Level] = []
    for task in dict.fromkeys(table.task for table in shared):
        of_task = [table for table in shared if table.task == task]
        area = (_share if measure.over else _area)(of_task, pair, measure, task_seed(seed, task))
        if area is None:
            continue
        areas.append(area.mean)
        resampled.append(area.resampled)
        contexts.append(area.contexts)
        over += [area.over] if area.over else []
        differing += area.differing
        levels += area.levels
    if not areas:
        return None
    mean = float(np.mean(areas))
    known = [one for one in resampled if one is not None]
    whole = len(known) == len(areas)  # a task of a single context has no resamples
    drawn: FloatArray = np.stack(known).mean(axis=0).round(DIGITS) if whole else np.empty(0)
    result = Pooled(
        *pair,
        measure,
        Difference(mean, None, None),
        ALPHA,
        bootstrap_p(drawn) if len(drawn) else 1.0,
        1,
        len(areas),
        len(levels),
        sum(contexts),
        max(contexts),
        differing,
        float(np.std(drawn, ddof=1)) if len(drawn) else 0.0,
        tuple(100 * np.mean(over, axis=0)) if over else None,
        span=_span(levels),
    )
    return result, drawn


def _span(levels: Sequence[Level]) -> str:
    """Writes from which asked level to which, such as "ratio 0.1 to 0.9". A board's area begins at the full cache
    instead, where nothing differs, so that a difference of areas is smaller there."""
    first, last = min(levels), max(levels)
    return first.where if first == last else f"{first.where} to {last}"


def _difference(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Returns the differences question by question, and where there is one."""
    one, other = (table.policies.index(name) for name in pair)
    values = table.values[measure.column][one] - table.values[measure.column][other]
    return values, ~np.isnan(values)


@dataclass(frozen=True)
class _Area:
    """The difference of two policies in one task, before anything is corrected."""

    mean: float
    resampled: FloatArray | None  # None from a single context
    contexts: int
    differing: int  # of these
    levels: tuple[Level, ...]
    over: tuple[float, float] | None = None  # of a share: the share of the questions that either policy's is over


def _area(tables: Sequence[AnswerTable], pair: tuple[str, str], measure: Compared, seed: int) -> _Area | None:
    """Averages the difference over the levels of a task, of the questions that have a value at each level."""
    values, there = zip(*(_difference(table, pair, measure) for table in tables), strict=True)
    common = np.all(there, axis=0)
    if not common.any():
        return None
    heights, draws = (_weights(tables) @ np.stack(values))[common], tables[0].draws[common]
    differing = np.abs(heights) > 10.0**-DIGITS
    counts = (*_counts(draws, differing), tuple(table.level for table in tables))
    return _Area(float(heights.mean()), resampled_means(heights, draws, seed), *counts)


def _share(tables: Sequence[AnswerTable], pair: tuple[str, str], measure: Compared, seed: int) -> _Area | None:
    """Averages the difference of two shares over the levels at which neither is a share of nothing. A sum over all
    levels would favour a policy that falls silent at the high ones, where all are wrong most often."""
    levels = [(table, share) for table in tables if (share := _share_at(table, pair, measure, seed)) is not None]
    if not levels:
        return None
    weights = _weights([table for table, _ in levels])
    mean = float(weights @ np.array([share.mean for _, share in levels]))
    drawn = [share.resampled for _, share in levels if share.resampled is not None]
    resampled: FloatArray | None = weights @ np.stack(drawn) if len(drawn) == len(levels) else None
    contexts, differing = (max(getattr(share, name) for _, share in levels) for name in ("contexts", "differing"))
    over = weights @ np.array([share.over for _, share in levels])
    at = tuple(table.level for table, _ in levels)
    return _Area(mean, resampled, contexts, differing, at, (float(over[0]), float(over[1])))


def _share_at(table: AnswerTable, pair: tuple[str, str], measure: Compared, seed: int) -> _Area | None:
    """Computes the difference of two shares at one level; None where one is a share of nothing."""
    common = _difference(table, pair, measure)[1]
    places, draws = [table.policies.index(name) for name in pair], table.draws[common]
    counted, over = (table.values[column][places][:, common] for column in (measure.column, measure.over))
    if not over.sum(axis=1).all():
        return None
    one, other = counted.sum(axis=1) / over.sum(axis=1)
    drawn = [resampled_means(values, draws, seed, weights=of) for values, of in zip(counted, over, strict=True)]
    # Resamples in which one answers nothing stand on neither side of 0.
    resampled = None if drawn[0] is None or drawn[1] is None else np.nan_to_num(drawn[0] - drawn[1])
    differing = (counted[0] != counted[1]) | (over[0] != over[1])
    counts = (*_counts(draws, differing), (table.level,))
    return _Area(float(one - other), resampled, *counts, over=tuple(over.mean(axis=1).tolist()))


def _counts(draws: NDArray[np.intp], differing: NDArray[np.bool_]) -> tuple[int, int]:
    """Counts the contexts, and those of them in which two policies differ."""
    return len(np.unique(draws)), len(np.unique(draws[differing]))


def _weights(tables: Sequence[AnswerTable]) -> FloatArray:
    return area_weights(np.array([table.ratio for table in tables]))


def area_weights(ratios: FloatArray) -> FloatArray:
    """Returns what each level counts in the mean height of a curve by the trapezoid rule, shape (levels,), summing to
    1: from the lowest ratio to the highest. All the same where ratios are not known, or all are one."""
    order = np.argsort(ratios)
    ordered = ratios[order]
    if not np.isfinite(ratios).all() or ordered[-1] <= ordered[0]:
        return np.full(len(ratios), 1 / len(ratios))
    widths = np.diff(ordered)
    weights = np.empty(len(ratios))
    weights[order] = (np.append(0, widths) + np.append(widths, 0)) / (2 * widths.sum())
    return weights
