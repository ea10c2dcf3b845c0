"""The Global Eviction Ratio with the hallucination rate: is it what is evicted everywhere that is made up?"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import pearsonr, spearmanr

from leaderboards.boards.declaration import DerivedMeasure, each
from leaderboards.boards.profiles import FLAT, Profile
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.resampling import Blank

FEWEST_LEVELS = 3  # that a correlation takes: two points are always on a line
NO_ORDER = "all levels are equal"
TOO_FEW = "fewer than three levels"


@dataclass(frozen=True)
class Correlation:
    """Pearson's and Spearman's, each with its two-sided p. Levels of one policy are points about the same questions: p
    takes them for independent and is too small."""

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
    pearson, spearman = pearsonr(one, other), spearmanr(one, other)
    return Correlation(
        float(pearson.statistic), float(pearson.pvalue), float(spearman.statistic), float(spearman.pvalue), len(one)
    )


def ger_against_hallucination(profile: Profile) -> Correlation | Blank:
    """The Global Eviction Ratio with the hallucination rate, over what the policy was asked to reach, without the full
    cache."""
    if isinstance(profile.ger, Blank):
        return profile.ger
    if isinstance(profile.hallucination_rate, Blank):
        return profile.hallucination_rate
    return correlation(profile.ger[0, 1:], profile.hallucination_rate[0, 1:])


CORRELATION = DerivedMeasure(
    name="ger",
    unit="correlation",
    better=None,
    bounds=(-1, 1),
    line="Pearson’s and Spearman’s correlation of GER with the hallucination rate over the levels",
    definition=Definition(
        "GER against hallucination",
        "Pearson’s and Spearman’s correlation of the two over what a policy was asked to reach, each with its "
        "two-sided p. Levels of one policy are about the same questions: p takes them for independent, and is too "
        "small. Blank for fewer than three levels.",
        names=("Pearson’s r", "Spearman’s ρ"),
        chapter="routes",
    ),
    of_board=each(ger_against_hallucination),
    columns={
        "ger_pearson": "pearson",
        "ger_pearson_p": "pearson_p",
        "ger_spearman": "spearman",
        "ger_spearman_p": "spearman_p",
        "ger_points": "n",
    },
)
