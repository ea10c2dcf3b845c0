"""The difference of two policies in one task: averaged over its levels, context by context."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leaderboards.aggregate.answer_tables import AnswerTable
from leaderboards.aggregate.comparison.duel import Compared
from leaderboards.statistics.bootstrap import DIGITS, FloatArray
from leaderboards.statistics.subset_means import fewest_clusters


def is_shared(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> bool:
    """Tells whether both have a value of some question."""
    return set(pair) <= set(table.policies) and bool(_difference(table, pair, measure)[1].any())


def _difference(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Returns the differences question by question, and where there is one."""
    one, other = _sides(table, pair, measure)
    return one - other, ~np.isnan(one - other)


def _sides(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> FloatArray:
    """Returns the values of both, shape (2, questions)."""
    return table.values[measure.column][[table.policies.index(name) for name in pair]]


@dataclass(frozen=True)
class TaskDifference:
    """The difference of two policies in one task, before anything is corrected."""

    values: FloatArray  # one for each context; their mean is the difference
    sides: tuple[float, float]  # what either policy has, whose difference it is
    contexts: int  # of a share those in which both answer
    differing: int  # contexts
    tables: Sequence[AnswerTable]  # of its levels
    over: tuple[float, float] | None = None  # of a share: the share of the questions that either policy's is over


def area_of(tables: Sequence[AnswerTable], pair: tuple[str, str], measure: Compared) -> TaskDifference | None:
    """Averages the difference over the levels of a task, of the questions that have a value at each level."""
    values, there = zip(*(_difference(table, pair, measure) for table in tables), strict=True)
    common = np.all(there, axis=0)
    if not common.any():
        return None
    heights, draws = (_weights(tables) @ np.stack(values))[common], _numbered(tables[0].draws[common])
    counts = np.bincount(draws).astype(np.float64)
    differing = len(np.unique(draws[np.abs(heights) > 10.0**-DIGITS]))
    by_context = _by_context(np.bincount(draws, heights).astype(np.float64), counts)
    pairs = np.stack([_sides(table, pair, measure)[:, common].mean(axis=1) for table in tables])
    one, other = (_weights(tables) @ pairs).tolist()
    return TaskDifference(by_context, (one, other), len(counts), differing, tables)


def _numbered(draws: NDArray[np.intp]) -> NDArray[np.intp]:
    """Numbers contexts from 0 without gaps."""
    return np.unique(draws, return_inverse=True)[1]


def _by_context(sums: FloatArray, counts: FloatArray) -> FloatArray:
    """Returns a value for each context whose mean is the mean or share over all questions, and whose spread is that of
    the mean: to first order a share moves with a context by what its sum is beyond the share of its count.
    [W. G. Cochran, Sampling Techniques (1977), section 6.4]"""
    share = sums.sum() / counts.sum()
    values: FloatArray = share + (sums - share * counts) / counts.mean()
    return values


def area_of_shares(tables: Sequence[AnswerTable], pair: tuple[str, str], measure: Compared) -> TaskDifference | None:
    """Averages the difference of two shares over the levels at which both answer something in as many contexts as a
    test needs, unless there are none: a share of few answers does not vary as it should. A sum over all levels would
    favour a policy that falls silent at the high ones, where all are wrong most often."""
    known = [area for table in tables if (area := _share_at(table, pair, measure))]
    levels = [area for area in known if area.contexts >= fewest_clusters()] or known
    if not levels:
        return None
    at = [table for area in levels for table in area.tables]
    weights = _weights(at)
    values: FloatArray = weights @ np.stack([area.values for area in levels])
    contexts, differing = (max(getattr(area, name) for area in levels) for name in ("contexts", "differing"))
    sides, over = (
        (weights @ np.array([getattr(area, name) for area in levels])).tolist() for name in ("sides", "over")
    )
    return TaskDifference(values, tuple(sides), contexts, differing, at, tuple(over))


def _share_at(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> TaskDifference | None:
    """Computes the difference of two shares at one level; None where one is a share of nothing."""
    common = _difference(table, pair, measure)[1]
    places, draws = [table.policies.index(name) for name in pair], _numbered(table.draws)
    counted, over = (
        np.stack([np.bincount(draws, np.where(common, row, 0)) for row in table.values[column][places]])
        for column in (measure.column, measure.over)
    )
    if not over.sum(axis=1).all():
        return None
    one, other = (_by_context(counted[side], over[side]) for side in (0, 1))
    differing = int(((counted[0] != counted[1]) | (over[0] != over[1])).sum())
    answered = over.sum(axis=1) / common.sum()
    both = int((over > 0).all(axis=0).sum())
    sides, answered_by = (float(one.mean()), float(other.mean())), (float(answered[0]), float(answered[1]))
    return TaskDifference(one - other, sides, both, differing, [table], answered_by)


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
