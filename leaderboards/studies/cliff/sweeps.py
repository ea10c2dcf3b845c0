"""Measures how the rate of made-up answers rises over the share of the cache that is removed, and
whether GER goes with it: over ratios, as arXiv 2603.01426 correlates the two, and over contexts at
one ratio.

Arrays have the shape (1 + resamples, ...): as measured, then in each resample of contexts
(``aggregate.evidence``)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from leaderboards.aggregate.evidence import NoEvidenceError, TaskEvidence
from leaderboards.statistics.bootstrap import FLAT, LEVEL, Estimate, FloatArray, percentile_interval
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

RATE, GER, COVERAGE, REALISED = "hallucinated", "ger", "slot_coverage", "realised_ratio"
# Only of these is it known whether what they state is gone.
WITH_ANSWER = {"answerable": True}


def slopes(ratios: FloatArray, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the middles of neighbouring ratios, shape (levels - 1,), and how fast rates of shape
    (1 + resamples, levels) rise there: the susceptibility by finite differences."""
    middles = (ratios[:-1] + ratios[1:]) / 2
    steps = np.abs(np.diff(ratios))
    return middles, np.diff(rates, axis=1) / steps


def steepest(slopes: FloatArray) -> NDArray[np.intp]:
    """Returns the place of the steepest slope of each row, shape (rows,): the first of those that
    differ by noise alone. ``slopes``: shape (rows, steps)."""
    highest = slopes.max(axis=1, keepdims=True)
    places: NDArray[np.intp] = np.argmax(slopes >= highest - FLAT, axis=1)
    return places


def peaks(middles: FloatArray, rises: FloatArray) -> FloatArray:
    """Returns the middle at which each row rises fastest, shape (rows,); NaN of a row that rises
    nowhere, or has no value. ``middles``: shape (steps,). ``rises``: shape (rows, steps)."""
    is_complete = ~np.isnan(rises).any(axis=1)
    # np.max gives NaN for a row that has one.
    places = steepest(np.nan_to_num(rises, nan=-np.inf))
    rows = np.arange(len(rises))
    does_rise = rises[rows, places] > FLAT
    highest: FloatArray = np.where(is_complete & does_rise, middles[places], np.nan)
    return highest


def pearson(first: FloatArray, second: FloatArray) -> FloatArray:
    """Returns Pearson's correlation of each row of two arrays of shape (1 + resamples, points); NaN
    where either is the same at all points."""
    x = first - first.mean(axis=1, keepdims=True)
    y = second - second.mean(axis=1, keepdims=True)
    spread = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    # The spread of numbers that differ by the noise of sums alone is not 0, and r of them would be
    # any number.
    varies = (np.abs(x).max(axis=1) > FLAT) & (np.abs(y).max(axis=1) > FLAT)
    products = (x * y).sum(axis=1)
    undefined = np.full(len(x), np.nan)
    correlation: FloatArray = np.divide(products, spread, out=undefined, where=varies)
    return correlation


Cell = tuple[TaskEvidence, str, float]  # a task, a policy and its level


def partial_correlation(cells: Iterable[Cell], where: Mapping[str, object]) -> FloatArray:
    """Returns the correlation of GER with the rate over contexts, given task, policy and level: of
    what either is above its mean there. Shape (1 + resamples,), NaN where either is the same for
    all contexts. ``where``: values of other columns of the answers that are meant."""
    return _correlation(_sums(cells, where))


def _sums(cells: Iterable[Cell], where: Mapping[str, object]) -> FloatArray:
    """Adds up the products of all cells: shape (3, 1 + resamples)."""
    products = [_products(*cell, where) for cell in cells]
    total: FloatArray = np.sum(products, axis=0)
    return total


def _correlation(sums: FloatArray) -> FloatArray:
    evicted, rates, both = sums
    varies = (evicted > FLAT) & (rates > FLAT)  # and is not the noise of sums alone
    spread = np.sqrt(np.where(varies, evicted * rates, 1.0))
    values: FloatArray = np.where(varies, both / spread, np.nan)
    return values


def _products(
    task: TaskEvidence, policy: str, level: float, where: Mapping[str, object]
) -> FloatArray:
    """Returns three sums over the contexts of one policy at one level, shape (3, 1 + resamples):
    the squares of GER and of the rate, each about its mean there, and their products."""
    evicted = task.by_context(policy, level, GER, **where)
    rate = task.by_context(policy, level, RATE, **where)
    has_both = ~(np.isnan(evicted) | np.isnan(rate))
    x = np.where(has_both, evicted, 0.0)
    y = np.where(has_both, rate, 0.0)
    # Of each resample the sum of products about the means, as Σ w x y - Σ w x · Σ w y / Σ w: a few
    # products of matrices instead of a loop over resamples.
    weights = task.resampler.weights
    count = weights @ has_both
    sums = []
    for first, second in ((x, x), (y, y), (x, y)):
        products_of_sums = (weights @ first) * (weights @ second)
        nothing = np.zeros(len(count))
        of_means = np.divide(products_of_sums, count, out=nothing, where=count > 0)
        sums.append(weights @ (first * second) - of_means)
    return np.stack(sums)


@dataclass(frozen=True)
class Sweep:
    """One policy over its levels, the untreated cache first: means over tasks, which weigh the
    same."""

    policy: str
    tasks: Sequence[TaskEvidence]
    levels: Sequence[Level]
    realised: FloatArray  # share of the rows that is really removed, shape (levels,), rising
    rate: FloatArray  # of made-up answers, shape (1 + resamples, levels)
    # GER and the rate in plain resamples, of the same shape: what widens an interval where all
    # contexts agree moves each level by itself, and would pull a correlation over levels towards 0.
    plain_ger: FloatArray
    plain_rate: FloatArray
    coverage: FloatArray  # mean slot coverage, shape (levels,)

    @property
    def contexts(self) -> int:
        return sum(task.contexts for task in self.tasks)

    def mean(self, column: str) -> FloatArray:
        """Averages another column at the same levels: shape (1 + resamples, levels)."""
        return _means(self.tasks, _places(self.policy, self.levels[1:]), column)

    @property
    def cells(self) -> list[Cell]:
        cells: list[Cell] = []
        for task in self.tasks:
            for level in self.levels[1:]:
                cells.append((task, self.policy, level.value))
        return cells

    @cached_property
    def rises(self) -> tuple[FloatArray, FloatArray]:
        """Returns the middles of the steps, and the susceptibility at each: shape (1 + resamples,
        levels - 1)."""
        return slopes(self.realised, self.rate)

    @property
    def cliff(self) -> Estimate | None:
        """Estimates the realised ratio at which the rate rises fastest; None where it rises
        nowhere."""
        return self.estimate_if_any(peaks(*self.rises))

    @property
    def cliff_is_clear(self) -> bool:
        """Tells whether the rate rises at the cliff at all: the interval of the slope there leaves
        out 0, corrected over the steps of which the steepest was chosen."""
        _, rises = self.rises
        # The step is chosen as measured; the correction below is for having chosen it.
        peak = steepest(rises[:1])[0]
        resampled = rises[1:, peak]
        if self.contexts < 2 or np.isnan(resampled).any():
            return False
        steps = rises.shape[1]
        low, _ = percentile_interval(resampled, 1 - (1 - LEVEL) / steps)
        return low > FLAT

    @property
    def correlation(self) -> Estimate | None:
        """Estimates Pearson's correlation of GER and the rate over ratios; None where either is the
        same at all."""
        return self.estimate_if_any(pearson(self.plain_ger, self.plain_rate))

    @property
    def partial(self) -> Estimate | None:
        """Estimates their correlation over contexts, given task and level."""
        return self.estimate_if_any(_correlation(self.sums))

    @cached_property
    def sums(self) -> FloatArray:
        """Adds up the products of GER and the rate that the partial correlation needs: shape
        (3, 1 + resamples). Those of several policies may be added."""
        return _sums(self.cells, WITH_ANSWER)

    def estimate_if_any(self, values: FloatArray) -> Estimate | None:
        """Makes an estimate of values of shape (1 + resamples,); None where there is none as
        measured."""
        if np.isnan(values[0]):
            return None
        return self.estimate(values)

    def estimate(self, values: FloatArray) -> Estimate:
        """Makes an estimate of values as measured and as resampled, shape (1 + resamples,); without
        an interval from a single context."""
        resampled = None
        if self.contexts > 1:
            resampled = values[1:]
        return Estimate.of(float(values[0]), resampled, self.contexts)


def together(sweeps: Sequence[Sweep]) -> tuple[Estimate | None, Estimate | None]:
    """Estimates both correlations over the points of all policies: over ratios, where the full
    cache is one point, and over contexts, given policy and level."""
    first = sweeps[0]
    gers, rates, sums = [], [], []
    for sweep in sweeps:
        gers.append(sweep.plain_ger)
        rates.append(sweep.plain_rate)
        sums.append(sweep.sums)
    over_ratios = first.estimate_if_any(pearson(_joined(gers), _joined(rates)))
    over_contexts = first.estimate_if_any(_correlation(np.sum(sums, axis=0)))
    return over_ratios, over_contexts


def _joined(points: Sequence[FloatArray]) -> FloatArray:
    """Joins the levels of policies; the untreated cache, which is the first of each, stands there
    once."""
    untreated = points[0][:, :1]
    treated = [values[:, 1:] for values in points]
    return np.concatenate([untreated, *treated], axis=1)


def is_swept(task: TaskEvidence) -> bool:
    """Tells whether some policy removes tokens at two levels at least."""
    for policy in task.records["policy"].unique():
        if policy != FULL and len(shared_levels(str(policy), [task])) > 1:
            return True
    return False


def find_sweeps(tasks: Sequence[TaskEvidence]) -> list[Sweep]:
    """Returns the policies that remove tokens at two levels at least, in the order of the
    records."""
    policies: dict[str, None] = {}
    for task in tasks:
        policies |= dict.fromkeys(map(str, task.records["policy"].unique()))
    sweeps = []
    for policy in policies:
        if policy == FULL:
            continue
        sweep = _build_sweep(policy, tasks)
        if sweep is not None:
            sweeps.append(sweep)
    return sweeps


def _build_sweep(policy: str, tasks: Sequence[TaskEvidence]) -> Sweep | None:
    levels = shared_levels(policy, tasks)
    if len(levels) < 2:
        return None
    places = _places(policy, [*levels])
    try:
        rate = _means(tasks, places, RATE)
        ger = _means(tasks, places, GER, False, **WITH_ANSWER)
        plain_rate = _means(tasks, places, RATE, False)
        coverage = _means(tasks, places, COVERAGE, False, **WITH_ANSWER)[0]
    except NoEvidenceError:  # nothing is known of what is left, as of presses that rewrite rows
        return None
    realised = np.array([0.0, *levels.values()])
    return Sweep(policy, tasks, (UNTREATED, *levels), realised, rate, ger, plain_rate, coverage)


def _places(policy: str, levels: Sequence[Level]) -> list[tuple[str, float | None]]:
    """Lists the untreated cache and the levels of a policy, by name and value."""
    return [(FULL, None), *((policy, level.value) for level in levels)]


def shared_levels(policy: str, tasks: Sequence[TaskEvidence]) -> dict[Level, float]:
    """Returns what each level really removes, mean over tasks, of the levels that every task has
    without a failed answer; of levels that remove as much as one before them the first."""
    of_tasks = [_removed(task.records, policy) for task in tasks]
    shared = set(of_tasks[0]).intersection(*of_tasks)
    means: dict[Level, float] = {}
    for level in of_tasks[0]:
        if level in shared:
            means[level] = float(np.mean([of_task[level] for of_task in of_tasks]))
    chosen: dict[Level, float] = {}
    last = 0.0
    for level, removed in sorted(means.items(), key=lambda item: item[1]):
        # A step without width has no slope.
        if removed > last + FLAT:
            chosen[level] = last = removed
    return chosen


def _removed(records: DataFrame, policy: str) -> dict[Level, float]:
    """Returns the mean realised ratio at each level of a policy; what failed somewhere, or is not
    known, has none."""
    of_policy = records[records["policy"] == policy]
    removed = {}
    for (kind, value), cell in of_policy.groupby(["level_kind", "level"], observed=True):
        ratio = cell[REALISED].astype(float)
        if (cell["status"] == "ok").all() and ratio.notna().all():
            removed[Level(str(kind), float(value))] = float(ratio.mean())
    return removed


def _means(
    tasks: Sequence[TaskEvidence],
    places: Sequence[tuple[str, float | None]],
    column: str,
    has_width: bool = True,
    **where: object,
) -> FloatArray:
    """Averages a column over tasks at each policy and level: shape (1 + resamples, places). A place
    without an answer raises :class:`NoEvidenceError`."""
    means = []
    for policy, level in places:
        of_tasks = [task.mean(policy, level, column, has_width, **where) for task in tasks]
        means.append(np.mean(of_tasks, axis=0))
    return np.stack(means, axis=1)
