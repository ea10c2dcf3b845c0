"""Correlates the Global Eviction Ratio with the rates of wrong answers: are answers made up where the evidence is
evicted everywhere?"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from pandas import Series
from scipy.special import stdtr

from leaderboards.aggregate.row import HALLUCINATION, WRONG_OF_ANSWERED
from leaderboards.boards.declaration import DerivedMeasure, for_each_policy
from leaderboards.boards.profiles import FLAT, Measured, Profile
from leaderboards.metrics import Measure
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.statistics.bootstrap import Blank, FloatArray

FEWEST_LEVELS = 3  # that a correlation takes: two points are always on a line
NO_ORDER = "all levels are equal"
TOO_FEW = "fewer than three levels"
TINY = 1e-300  # of a correlation of 1, p is 0 and not undefined


@dataclass(frozen=True)
class Correlation:
    """Holds Pearson's and Spearman's correlation, each with its two-sided p. Levels of one policy are points about the
    same questions: p takes them for independent and is too small."""

    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float
    n: int  # points


def correlation(one: FloatArray, other: FloatArray) -> Correlation | Blank:
    """Correlates two measures of the same points, each of shape (points,)."""
    if len(one) < FEWEST_LEVELS:
        return Blank(TOO_FEW)
    if min(np.ptp(one), np.ptp(other)) <= FLAT:
        return Blank(NO_ORDER)
    ranks = [Series(values).rank().to_numpy() for values in (one, other)]  # those that are equal share the mean
    return Correlation(*_pearson(one, other), *_pearson(*ranks), len(one))


def _pearson(one: FloatArray, other: FloatArray) -> tuple[float, float]:
    """Returns the coefficient and its two-sided p, by Student's t of n - 2 degrees of freedom. (``scipy.stats`` has it
    too, and takes half a second to import.)"""
    r = float(np.corrcoef(one, other)[0, 1])
    freedom = len(one) - 2
    t = r * np.sqrt(freedom / max((1 - r) * (1 + r), TINY))
    return r, float(2 * stdtr(freedom, -abs(t)))


def ger_against(profile: Profile, measure: Measure) -> Correlation | Blank:
    """Correlates the Global Eviction Ratio with a rate, over what the policy was asked to reach, without the full
    cache."""
    rates: Measured = getattr(profile, measure.field)
    if isinstance(profile.ger, Blank):
        return profile.ger
    if isinstance(rates, Blank):
        return rates
    return correlation(profile.ger[0, 1:], rates[0, 1:])


DEFINITION = Definition(
    "GER against wrong of answered, and against hallucination",
    "Pearson’s and Spearman’s correlation of the two over what a policy was asked to reach, each with its "
    "two-sided p. Levels of one policy are about the same questions: p takes them for independent, and is too "
    "small. Blank for fewer than three levels. Where a model falls silent as more is evicted, GER falls with "
    "hallucination and rises with wrong of answered: it is the second that says whether what it states is made up.",
    names=("Pearson’s r", "Spearman’s ρ", "of"),
    chapter="routes",
)


def _of(measure: Measure, name: str) -> DerivedMeasure[Correlation | Blank]:
    return DerivedMeasure(
        name=name,
        unit="correlation",
        better=None,
        bounds=(-1, 1),
        line=f"Pearson’s and Spearman’s correlation of GER with {measure.title.lower()} over the levels",
        definition=DEFINITION,
        of_board=for_each_policy(partial(ger_against, measure=measure)),
        columns={
            f"{name}_pearson": "pearson",
            f"{name}_pearson_p": "pearson_p",
            f"{name}_spearman": "spearman",
            f"{name}_spearman_p": "spearman_p",
            f"{name}_points": "n",
        },
    )


WRONG_CORRELATION = _of(WRONG_OF_ANSWERED, "ger_wrong")
CORRELATION = _of(HALLUCINATION, "ger")
CORRELATIONS = {
    WRONG_OF_ANSWERED: WRONG_CORRELATION,
    HALLUCINATION: CORRELATION,
}  # by the rate that GER is held against
