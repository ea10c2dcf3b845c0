"""Derives from a profile the area under its curve, where it breaks, and up to which ratio it is safe.

Pure functions. A missing value is a :class:`~leaderboards.statistics.resampling.Blank` with a reason. Intervals are
95 %, by the percentiles of the resamples. With a handful of contexts they are too narrow.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import pearsonr, spearmanr

from leaderboards.aggregate.profiles import Profile
from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.statistics.bootstrap import FloatArray, discrete_interval
from leaderboards.statistics.resampling import Blank, Estimate

TOLERATED_LOSS = 5.0  # points of F1
FEWEST_LEVELS = 3  # that a correlation takes: two points are always on a line
FLAT = 1e-9  # differences below which are noise of sums

UNTREATED = "the full cache is not compressed"
NO_RISE = "hallucination rises nowhere"
NO_STEP = "two levels are of one ratio"
NO_ORDER = "all levels are equal"
TOO_FEW = "fewer than three levels"


@dataclass(frozen=True)
class Area:
    """The mean height of the curve of F1, in percent, over realised ratios from 0 to ``span``."""

    f1: Estimate
    span: float


def areas(profile: Profile, to: FloatArray | None = None) -> FloatArray | Blank:
    """The area under F1 over the realised ratio by the trapezoid rule, divided by its span, hence in percent like F1.

    Shape (1 + resamples,). From the full cache at 0 to the last realised ratio: what lies beyond is not known and not
    counted, so that policies of different spans are compared over the span that they share: ``to``, of the same shape,
    ends all areas there, on the line between two points. Where realised ratios do not ascend with what was asked, the
    points are taken by realised ratio. Where nothing is removed, it is the mean F1 of all points.
    """
    if isinstance(profile.f1, Blank):
        return profile.f1
    if isinstance(profile.realised_ratio, Blank):
        return profile.realised_ratio
    ratios, heights = profile.realised_ratio, profile.f1
    if (np.diff(ratios, axis=1) < 0).any():
        order = np.argsort(ratios, axis=1, kind="stable")
        ratios, heights = (np.take_along_axis(array, order, axis=1) for array in (ratios, heights))
    end = ratios[:, -1] if to is None else np.minimum(to, ratios[:, -1])
    widths, rises = np.diff(ratios, axis=1), np.diff(heights, axis=1)
    taken = np.clip(end[:, None] - ratios[:, :-1], 0, widths)  # of the width of each piece
    shares = np.divide(taken, widths, out=np.zeros_like(widths), where=widths > 0)
    total = (taken * (heights[:, :-1] + shares * rises / 2)).sum(axis=1)
    span = end - ratios[:, 0]
    found: FloatArray = np.divide(total, span, out=heights.mean(axis=1), where=span > FLAT)
    return found


def last_realised(profile: Profile) -> FloatArray | Blank:
    """The highest realised ratio, where the curve ends, shape (1 + resamples,)."""
    if isinstance(profile.realised_ratio, Blank):
        return profile.realised_ratio
    highest: FloatArray = profile.realised_ratio.max(axis=1)
    return highest


def area_under_curve(profile: Profile) -> Area | Blank:
    """Over the whole span of the policy; see :func:`areas`. Of the full cache, which spans nothing, its F1."""
    found, span = areas(profile), last_realised(profile)
    if isinstance(found, Blank):
        return found
    if isinstance(span, Blank):
        return span
    return Area(_estimate(found, profile), float(span[0]))


@dataclass(frozen=True)
class Slope:
    """How fast the hallucination rate rises between two neighbouring levels: ``rise`` per unit of ratio, so that 2.0 is
    20 percentage points from one tenth to the next. ``ratio``: the middle of the two."""

    ratio: float
    rise: Estimate


def susceptibility(profile: Profile) -> tuple[Slope, ...] | Blank:
    """χ = dH/dα by finite differences, from the full cache on. α is the asked ratio; for budgets the mean realised one.
    [after arXiv 2603.01426]"""
    found = _slopes(profile)
    if isinstance(found, Blank):
        return found
    ratios, slopes = found
    return tuple(
        Slope(float(ratio), _estimate(column, profile)) for ratio, column in zip(ratios, slopes.T, strict=True)
    )


@dataclass(frozen=True)
class Cliff:
    """Tells where susceptibility peaks. ``ratio``: the middle of two neighbouring asked ratios; ``low`` and ``high``
    are such middles too, None from a single context. ``rise``: the susceptibility there.

    It is the largest of several slopes, and so flattered by chance: :attr:`is_clear` says whether it is a rise at all,
    and neighbouring slopes that are about as steep make the interval wide.
    """

    ratio: float
    low: float | None
    high: float | None
    rise: Estimate

    @property
    def is_clear(self) -> bool:
        """Tells whether the interval of the rise lies above 0."""
        return self.rise.low is not None and self.rise.low > 0


def cliff(profile: Profile) -> Cliff | Blank:
    """The first of equally steep places. Its interval holds that and 95 % of the resamples' cliffs, those in which
    hallucination rises nowhere left out. Blank where it rises nowhere as measured, and by budget."""
    found = Blank(profile.not_comparable) if profile.not_comparable else _slopes(profile)
    if isinstance(found, Blank):
        return found
    ratios, slopes = found
    if slopes[0].max() <= FLAT:
        return Blank(NO_RISE)
    # What differs by the noise of sums alone is equally steep.
    places = np.argmax(slopes >= slopes.max(axis=1, keepdims=True) - FLAT, axis=1)
    rising = places[1:][slopes[1:].max(axis=1) > FLAT]
    low, high = discrete_interval(ratios[rising], float(ratios[places[0]]))
    return Cliff(float(ratios[places[0]]), low, high, _estimate(slopes[:, places[0]], profile))


def _slopes(profile: Profile) -> tuple[FloatArray, FloatArray] | Blank:
    """The middles of neighbouring levels, shape (levels - 1,), and the susceptibility there, (1 + resamples, levels -
    1)."""
    rates, realised = profile.hallucination_rate, profile.realised_ratio
    if len(profile.levels) < 2:
        return Blank(UNTREATED)
    if isinstance(rates, Blank):
        return rates
    # The first level is the untreated cache, whatever its kind is called.
    ratios = np.array([profile.levels[-1].declared.nothing, *(level.value for level in profile.levels[1:])])
    if profile.not_comparable:
        if isinstance(realised, Blank):
            return realised
        ratios = realised[0]
    steps = np.abs(np.diff(ratios))
    if (steps <= FLAT).any():
        return Blank(NO_STEP)
    return (ratios[:-1] + ratios[1:]) / 2, np.diff(rates, axis=1) / steps


@dataclass(frozen=True)
class SafeRatio:
    """``ratio``: the highest that is safe, 0 if none is. ``losses``: of F1, in points, against the full cache on the
    same questions, at each asked level."""

    ratio: float
    losses: tuple[Estimate, ...]


def safe_ratio(profile: Profile) -> SafeRatio | Blank:
    """The highest asked ratio up to which, at every lower one too, the loss of F1 against the full cache stays below 5
    points even at the upper end of its 95 % interval.

    The loss is paired: the same questions in the same resamples. Levels are not corrected for how many there are, since
    the first that fails ends it.
    """
    if isinstance(profile.f1, Blank):
        return profile.f1
    if len(profile.levels) < 2:
        return Blank(UNTREATED)
    if profile.not_comparable:
        return Blank(profile.not_comparable)
    if len(profile.f1) < 2:
        return Blank(ONE_CONTEXT)
    lost = profile.f1[:, :1] - profile.f1[:, 1:]
    losses = tuple(_estimate(column, profile) for column in lost.T)
    safe = 0.0
    for level, loss in zip(profile.levels[1:], losses, strict=True):
        if loss.high is None or loss.high >= TOLERATED_LOSS:
            break
        safe = level.value
    return SafeRatio(safe, losses)


@dataclass(frozen=True)
class Correlation:
    """Pearson's and Spearman's, each with its two-sided p, over ``n`` points. Levels of one policy are points about the
    same questions: p takes them for independent and is too small."""

    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float
    n: int


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


def _estimate(values: FloatArray, profile: Profile) -> Estimate:
    """Makes an estimate of a value as measured and as resampled, shape (1 + resamples,)."""
    return Estimate.of(float(values[0]), values[1:], profile.questions)
