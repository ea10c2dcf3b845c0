"""Tests of one difference, and what is left of their p-values when many are made.

Correction over a family: S. Holm, Scandinavian Journal of Statistics 6 (1979), which bounds the chance of any false
claim; Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. B 57 (1995), which bounds the share of false ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wilcoxon
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from leaderboards.statistics.bootstrap import FloatArray

ALPHA = 0.05
EXACT_BELOW = 25  # discordant questions, from which on chi-square is close enough
FEWEST_DIFFERENCES = 6  # that are not zero: of fewer, the least two-sided p that signed ranks can reach is above 0.05
EXACT_UP_TO = 50  # clusters, beyond which the sum of signed ranks is close enough to normal
ROUNDING = 1e-9  # below which a difference of means is noise of their sums

Method = Literal["holm", "fdr_bh"]
Name = TypeVar("Name")


@dataclass(frozen=True)
class Family(Generic[Name]):
    """The tests that are corrected together. ``p``: corrected, under the names they were given."""

    name: str
    method: Method
    p: Mapping[Name, float]


def corrected(p_values: Mapping[Name, float], family: str, method: Method = "holm") -> Family[Name]:
    """Corrects the p-values of the family ``family`` for how many there are: by Holm's method, or for the false
    discovery rate by Benjamini and Hochberg's (``fdr_bh``)."""
    given = np.array(list(p_values.values()))
    if not len(given):
        return Family(family, method, {})
    found = _holm(given) if method == "holm" else multipletests(given, ALPHA, method=method)[1]
    return Family(family, method, {name: float(p) for name, p in zip(p_values, found, strict=True)})


def _holm(p_values: FloatArray) -> FloatArray:
    """Corrects by Holm's method. Statsmodels also collects garbage, which takes half a second where torch is loaded."""
    order = np.argsort(p_values)
    found = np.empty_like(p_values)
    found[order] = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)), 1)
    return found


@lru_cache(maxsize=4096)  # counts are small, and a board asks for them thousands of times
def mcnemar_p(only_one: int, only_other: int) -> float:
    """Two-sided p that each of two is as likely to be the only one that is right (Q. McNemar, Psychometrika 12, 1947):
    exact below 25 such questions, else by chi-square with Edwards' continuity correction. Takes questions for
    independent, also those about one context."""
    table = [[0, only_one], [only_other, 0]]
    return float(mcnemar(table, exact=only_one + only_other < EXACT_BELOW, correction=True).pvalue)


def wilcoxon_p(values: FloatArray, clusters: NDArray[np.intp]) -> float | None:
    """Two-sided p that the clusters' mean differences are symmetric about 0 (F. Wilcoxon, Biometrics Bulletin 1, 1945).

    ``values``: a difference for each question, shape (questions,), NaN where it has none. ``clusters``: that of each,
    as numbers. Every cluster weighs the same. None where fewer than 6 of them differ at all.

    Exact up to 50 clusters, by the distribution for ranks without ties also where there are some: the exact one for
    ties, which scipy would choose below 14, takes up to a second for each test and differs little.
    """
    known = ~np.isnan(values)
    _, positions, counts = np.unique(clusters[known], return_inverse=True, return_counts=True)
    means = np.bincount(positions, weights=values[known]) / counts
    means = np.round(means[np.abs(means) > ROUNDING], 9)  # what is equal but for noise is a tie
    if len(means) < FEWEST_DIFFERENCES:
        return None
    return float(wilcoxon(means, method="exact" if len(means) <= EXACT_UP_TO else "asymptotic").pvalue)
