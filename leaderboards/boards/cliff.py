"""Finds the cliff, where wrong answers rise fastest, from their susceptibility."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from leaderboards.aggregate.row import HALLUCINATION, WRONG_OF_ANSWERED
from leaderboards.boards.declaration import DerivedMeasure, TableCell, for_each_policy
from leaderboards.boards.profiles import FLAT, Measured, Profile
from leaderboards.metrics import Interval, Measure
from leaderboards.metrics.declaration import Definition, with_interval
from leaderboards.metrics.routing import ROUTING
from leaderboards.statistics.bootstrap import Blank, Estimate, FloatArray, discrete_interval, interval_of
from leaderboards.statistics.text import interval_text

NO_STEP = "two levels are of one ratio"
LEAST_RISE = 5.0  # points from one level to the next, below which a rise is no cliff


def susceptibility(profile: Profile, measure: Measure) -> tuple[FloatArray, FloatArray] | Blank:
    """Computes χ = dR/dα of a rate by finite differences, from the full cache on: the middles of neighbouring
    levels, shape (levels - 1,), and the susceptibility there, shape (1 + resamples, levels - 1), so that 2.0 is 20
    percentage points from one tenth to the next. α is the asked ratio; for budgets the mean realised one. [after
    arXiv 2603.01426]"""
    rates: Measured = getattr(profile, measure.field)
    realised = profile.realised_ratio
    if profile.no_levels:
        return Blank(profile.no_levels)
    if isinstance(rates, Blank):
        return rates
    # The first level is the untreated cache, whatever its kind is called.
    ratios = np.array([profile.levels[-1].declared.nothing, *(level.value for level in profile.levels[1:])])
    if profile.not_comparable:
        if isinstance(realised, Blank):
            return realised
        ratios = realised[0]
    return Blank(NO_STEP) if (np.abs(np.diff(ratios)) <= FLAT).any() else slopes(ratios, rates)


def slopes(ratios: FloatArray, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the middles of neighbouring ratios, shape (levels - 1,), and how fast rates of shape (1 + resamples,
    levels) rise there."""
    return (ratios[:-1] + ratios[1:]) / 2, np.diff(rates, axis=1) / np.abs(np.diff(ratios))


def steepest(slopes: FloatArray) -> NDArray[np.intp]:
    """Returns the place of the steepest slope of each row, the first of equally steep ones; what differs by the noise
    of sums alone is equally steep."""
    places: NDArray[np.intp] = np.argmax(slopes >= slopes.max(axis=1, keepdims=True) - FLAT, axis=1)
    return places


@dataclass(frozen=True)
class Cliff:
    """Tells where susceptibility peaks.

    It is the largest of several slopes, and so flattered by chance: :attr:`is_clear` says whether it is a rise at all,
    and neighbouring slopes that are about as steep make the interval wide.
    """

    ratio: float  # the middle of two neighbouring asked ratios
    low: float | None  # such a middle too; None from a single context
    high: float | None
    rise: Estimate  # the susceptibility there

    @property
    def interval(self) -> Interval | None:
        return interval_of(self.low, self.high)

    @property
    def is_clear(self) -> bool:
        """Tells whether the interval of the rise lies above 0."""
        return self.rise.low is not None and self.rise.low > 0


def cliff(profile: Profile, measure: Measure) -> Cliff | Blank:
    """Finds the steepest place, the first of equally steep ones. Its interval holds that and 95 % of the resamples'
    cliffs, those in which the rate rises nowhere left out. Blank where it rises by less than 5 points from one level to
    the next as measured, and by budget."""
    result = Blank(profile.not_comparable) if profile.not_comparable else susceptibility(profile, measure)
    if isinstance(result, Blank):
        return result
    ratios, rises = result
    if len(ratios) == 1:
        return Blank("there is one step alone, from the full cache to the only level that was asked for")
    if rises[0].max() <= FLAT:
        return Blank(f"{measure.title.lower()} rises nowhere")
    places = steepest(rises)
    step = measure.factor * float(np.diff(getattr(profile, measure.field)[0])[places[0]])
    if step < LEAST_RISE - FLAT:
        return Blank(f"{measure.title.lower()} rises by less than {LEAST_RISE:g} points from one level to the next")
    rising = places[1:][rises[1:].max(axis=1) > FLAT]
    low, high = discrete_interval(ratios[rising], float(ratios[places[0]]))
    return Cliff(float(ratios[places[0]]), low, high, profile.estimate(rises[:, places[0]]))


def _cell(cliff: Cliff) -> TableCell:
    interval = interval_text(cliff.interval, digits=2) if cliff.interval else ""
    return TableCell(f"{cliff.ratio:.2f}{'' if cliff.is_clear else ' ?'}", interval, cliff.ratio)


SUSCEPTIBILITY = Definition(
    "Susceptibility",
    "How fast a rate rises with the ratio, wrong of answered or hallucination, by finite differences between "
    "neighbouring asked ratios, from the full cache on: 2.0 is 20 points from one tenth to the next.",
    "χ = dR / dα",
    f"after {ROUTING}",
    with_interval("wrong_cliff_rise", "cliff_rise"),
    "board",
)
CLIFF_DEFINITION = Definition(
    "Cliff",
    "Where susceptibility peaks: the middle of two neighbouring asked ratios, with an interval that holds the "
    "cliffs of 95 % of the resamples. It is the largest of several slopes, and so flattered by chance. Blank "
    f"where the rate rises by less than {LEAST_RISE:g} points from one level to the next, and by budget. It is told "
    "of wrong of answered first, since the hallucination rate also falls when a model falls silent.",
    "cliff = argmax χ(α)",
    f"after {ROUTING}",
    chapter="board",
)


def _of(measure: Measure, name: str, heading: str, what: str) -> DerivedMeasure[Cliff | Blank]:
    return DerivedMeasure(
        name=name,
        unit="asked ratio",
        better=None,
        bounds=(0, 1),
        line=f"where {what} rises fastest, with its 95 % interval; ? where it may not rise",
        definition=CLIFF_DEFINITION,
        of_board=for_each_policy(partial(cliff, measure=measure)),
        columns={
            name: "ratio",
            f"{name}_low": "low",
            f"{name}_high": "high",
            f"{name}_rise": "rise.mean",
            f"{name}_rise_low": "rise.low",
            f"{name}_rise_high": "rise.high",
        },
        heading=heading,
        cell=_cell,
        parts=(SUSCEPTIBILITY,),
    )


WRONG_CLIFF = _of(WRONG_OF_ANSWERED, "wrong_cliff", "cliff, wrong", "the share of wrong answers among those given")
CLIFF = _of(HALLUCINATION, "cliff", "cliff, hallucinated", "hallucination")
CLIFFS = {WRONG_OF_ANSWERED: WRONG_CLIFF, HALLUCINATION: CLIFF}  # by the rate that rises
