"""Calls the tests of scipy that the tables of studies name."""

from leaderboards.statistics.context_sums import FloatArray
from policies.declaration.lazy import LazyModule

stats = LazyModule("scipy.stats")  # its import takes half a second, and few pages need it


def mcnemar(only_one: int, only_other: int) -> float:
    """Returns the two-sided p of McNemar's exact test: of the pairs of which one side alone is
    right, each side has it as often. [Q. McNemar, Psychometrika 12 (1947), 153-157]"""
    differing = only_one + only_other
    if not differing:
        return 1.0
    return float(stats.binomtest(only_one, differing).pvalue)


def mann_whitney(first: FloatArray, second: FloatArray) -> float:
    """Returns the two-sided p of the test of Mann and Whitney: neither sample tends to have the
    larger numbers. It is exact for up to eight numbers without ties. ``first``, ``second``: shape
    (numbers,), which need not be as many."""
    return float(stats.mannwhitneyu(first, second).pvalue)
