"""Estimates values at many places, such as steps or layers, and tests many places as one family.

Texts correct their p-values by Bonferroni or by Benjamini and Hochberg, pages their verdicts by
Holm (``significance.py``): a table that repeats a text's test has the text's corrections."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leaderboards.statistics.bootstrap import Estimate, FloatArray, resampled_ratios
from leaderboards.statistics.context_sums import sum_by_context
from policies.declaration.lazy import LazyModule

stats = LazyModule("scipy.stats")  # its import takes half a second, and few pages need it


def average_columns(
    values: FloatArray, clusters: Sequence[str] | NDArray[np.str_], seed: int = 0
) -> list[Estimate | None]:
    """Averages each column of values with its interval over clusters, which are resampled as a
    whole; None where a column has no value. All columns meet the same resamples, also where some
    clusters have no value there.

    ``values``: of shape (rows, places), NaN where a row has no value. ``clusters``: of each row."""
    names, numbers = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    by_place = values.T
    has_value = np.isfinite(by_place)
    present = np.where(has_value, by_place, 0.0)
    sums = sum_by_context(present, numbers, len(names), has_value.astype(np.float64))
    resampled = None
    if len(names) > 1:
        resampled = resampled_ratios(sums, seed)
    estimates: list[Estimate | None] = []
    totals = sums.stacked().sum(axis=2)
    for place, (total, count) in enumerate(totals):
        if not count:
            estimates.append(None)
            continue
        drawn = None
        # One cluster with a value is resampled into itself: there is no interval.
        if resampled is not None and np.count_nonzero(sums.counts[place]) > 1:
            drawn = resampled[place]
        estimates.append(Estimate.of(float(total / count), drawn, int(count)))
    return estimates


@dataclass(frozen=True)
class PValue:
    """A p-value, corrected in two ways over its family; all are None where there was nothing to
    test."""

    p: float | None = None
    # At most 0.05: that any test of the family is wrong is no likelier than that.
    p_bonferroni: float | None = None
    # At most 0.05: of all tests that say so, one in twenty is wrong on average.
    p_bh: float | None = None


def as_family(p_values: Sequence[float | None]) -> list[PValue]:
    """Corrects the p-values of one family. What could not be tested (None) counts for nothing.

    Y. Benjamini and Y. Hochberg, Journal of the Royal Statistical Society B 57 (1995), 289-300."""
    corrected = [PValue() for _ in p_values]
    tested = [place for place, p in enumerate(p_values) if p is not None]
    if not tested:
        return corrected
    family = np.array([p_values[place] for place in tested], dtype=np.float64)
    controlled = stats.false_discovery_control(family, method="bh")
    bonferroni = np.minimum(1.0, family * len(family))
    numbers = zip(tested, family.tolist(), bonferroni.tolist(), controlled.tolist(), strict=True)
    for place, p, p_bonferroni, p_bh in numbers:
        corrected[place] = PValue(p, p_bonferroni, p_bh)
    return corrected


def mcnemar(only_one: int, only_other: int) -> float:
    """Returns the two-sided p of McNemar's exact test: of the pairs of which one side alone is
    right, each side has it as often. [Q. McNemar, Psychometrika 12 (1947), 153-157]"""
    differing = only_one + only_other
    if not differing:
        return 1.0
    return float(stats.binomtest(only_one, differing).pvalue)


def mann_whitney(first: FloatArray, second: FloatArray) -> float:
    """Returns the two-sided p of the test of Mann and Whitney: neither sample tends to have the
    larger numbers. It is exact for up to eight numbers without ties."""
    return float(stats.mannwhitneyu(first, second).pvalue)
