"""Tells whether a policy beats a control at the same realised budget, and which difference could have been seen."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from leaderboards.aggregate.paired import UNDECIDED, Difference, Verdict
from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.boards.area import areas, last_realised
from leaderboards.boards.cells import SIGNS, Cell
from leaderboards.boards.declaration import BoardProfiles, DerivedMeasure
from leaderboards.boards.profiles import Profile
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.statistics.bootstrap import DIGITS, FloatArray
from leaderboards.statistics.resampling import Blank
from leaderboards.statistics.significance import ALPHA, POWER, bootstrap_p, correct_p, interval_of_test
from leaderboards.statistics.subset_means import step_down_levels
from policies.declaration.names import CONTROLS, TO_BEAT

NO_SPREAD = "all resamples are equal"
NO_VALUE = "some resamples have no value"
NOTHING_REMOVED = "one of them removes nothing"
A_CONTROL = "a control"
OTHER_LEVELS = "it has levels of another kind than the control"


def smallest_detectable_difference(resampled: FloatArray) -> float | Blank:
    """Returns the smallest true difference that samples like this one tell from 0, at two-sided 0.05, four times in
    five: (1.96 + 0.84) standard errors. [H. S. Bloom, Evaluation Review 19 (1995)]

    ``resampled``: a paired difference in each resample, shape (resamples,), whose standard deviation is the standard
    error; the result is in its unit. With a handful of contexts it is too small.
    """
    if not len(resampled):
        return Blank(ONE_CONTEXT)
    error = float(np.std(resampled, ddof=1))
    if np.isnan(error):
        return Blank(NO_VALUE)
    if error < 10.0**-DIGITS:
        return Blank(NO_SPREAD)
    return float(ndtri(1 - ALPHA / 2) + ndtri(POWER)) * error


@dataclass(frozen=True)
class Against:
    """A policy against another at the same realised budget."""

    # Of the areas in points, this one minus the other. On a board its interval is that of the corrected test.
    difference: Difference
    span: float  # both areas are over the realised ratios from 0 to this one, as far as both go
    smallest: float | Blank  # the smallest detectable difference, in points
    p: float  # corrected over the family of the board

    @property
    def verdict(self) -> Verdict:
        if self.p >= ALPHA or not self.difference.is_clear:
            return UNDECIDED
        return "better" if self.difference.mean > 0 else "worse"


def against(one: Profile, other: Profile) -> Against | Blank:
    """Returns one test by itself, not corrected. Blank from a single context, which has no interval."""
    found = _differences(one, other)
    if isinstance(found, Blank):
        return found
    differences, span = found
    smallest = smallest_detectable_difference(differences[1:])
    return Against(Difference.of(differences), span, smallest, bootstrap_p(differences[1:]))


def _differences(one: Profile, other: Profile) -> tuple[FloatArray, float] | Blank:
    """Returns the difference of the areas as measured and in each resample, and the span of both."""
    if one.axis != other.axis:
        return Blank(OTHER_LEVELS)
    end, other_end = last_realised(one), last_realised(other)
    if isinstance(end, Blank):
        return end
    if isinstance(other_end, Blank):
        return other_end
    shared = np.minimum(end, other_end)
    first, second = areas(one, shared), areas(other, shared)
    if isinstance(first, Blank):
        return first
    if isinstance(second, Blank):
        return second
    if shared[0] <= 0:
        return Blank(NOTHING_REMOVED)
    differences = np.round(first - second, DIGITS)  # noise of sums would be as clear as any
    if len(differences) < 2:
        return Blank(ONE_CONTEXT)
    return differences, float(shared[0])


@lru_cache(maxsize=1)  # the columns of both controls ask for the same board
def against_controls(board: BoardProfiles) -> Mapping[tuple[str, str], Against | Blank]:
    """Compares each method with each control, by the names of both. p and the interval are corrected over all of them
    that are not blank."""
    pairs = {
        (policy, control): (profile, board.profiles[control])
        for policy, profile in board.profiles.items()
        for control in TO_BEAT
        if control in board.profiles and policy not in CONTROLS
    }
    duels = {names: against(*pair) for names, pair in pairs.items()}
    p_values = {names: duel.p for names, duel in duels.items() if isinstance(duel, Against)}
    family = correct_p(p_values, f"better than {' or '.join(TO_BEAT)}: {board.task}, {board.mode}")
    levels = dict(zip(p_values, step_down_levels(np.array(list(p_values.values()))).tolist(), strict=True))
    return {
        names: _correct(duel, pairs[names], family.p[names], levels[names]) if isinstance(duel, Against) else duel
        for names, duel in duels.items()
    }


def _correct(duel: Against, pair: tuple[Profile, Profile], p: float, level: float) -> Against:
    """Returns the same with the corrected p, and with the interval of the test at the level at which Holm's method
    makes it: a reader would take a narrower one for a verdict."""
    found = _differences(*pair)
    if isinstance(found, Blank):
        raise TypeError("what is blank has no test")
    ends = interval_of_test(found[0][1:], level, p)
    return replace(duel, difference=Difference(duel.difference.mean, *ends), p=p)


def _beats(control: str) -> DerivedMeasure[Against | Blank]:
    def of_board(board: BoardProfiles) -> Mapping[str, Against | Blank]:
        found = against_controls(board)
        missing = Blank(f"{control} was not run")
        return {
            policy: Blank(A_CONTROL) if policy in CONTROLS else found.get((policy, control), missing)
            for policy in board.profiles
        }

    name = f"beats_{control}"
    return DerivedMeasure(
        name=name,
        unit="points",
        better="higher",
        bounds=(-100, 100),
        line="its area minus the control’s, in points, from the full cache to the last realised ratio that both reach "
        "(compare begins at the lowest asked ratio instead, and finds larger differences); verdict and interval are "
        "those of the test, corrected by Holm’s method over the board",
        definition=BEATS_DEFINITION,
        of_board=of_board,
        columns={
            f"{name}_verdict": "verdict",
            f"{name}_difference": "difference.mean",
            f"{name}_difference_low": "difference.low",
            f"{name}_difference_high": "difference.high",
            f"{name}_span": "span",
            f"{name}_smallest_detectable": "smallest",
            f"{name}_p": "p",
        },
        heading=f"beats {control}?",
        cell=_cell,
        parts=(SMALLEST_DETECTABLE,),
    )


def _cell(found: Against) -> Cell:
    verdict = found.verdict
    text = f"{SIGNS[verdict]} {verdict}".strip()
    return Cell(text, found.difference.text(), found.difference.mean, tone=verdict)


BEATS_DEFINITION = Definition(
    "Beats random? Beats recency?",
    "The area minus that of the control, both over the realised ratios from 0 to where the shorter curve ends, with "
    "its paired interval. A pooled difference of a comparison is over the asked levels alone, without the piece from "
    "the full cache to the lowest of them, and is larger. Better or worse where p, two-sided from the resamples and "
    "corrected by Holm’s method over all policies and both controls of a board, is "
    f"below {ALPHA:g}; else {UNDECIDED}. The interval is that of the corrected test, wider than one of 95 %, and "
    "leaves out 0 only where the verdict says so.",
    "p = 2 · (resamples on the rarer side of 0 + 1) / (resamples + 1); "
    "with none there, 2 · Φ(−|mean| / spread) of the resamples, if smaller",
    "A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application (1997), section 4.2",
    chapter="board",
)
SMALLEST_DETECTABLE = Definition(
    "Smallest detectable difference",
    f"The smallest true difference that a sample like this one tells from 0, at two-sided {ALPHA:g}, "
    f"{POWER:.0%} of the time, in one test by itself: the verdict beside it is corrected for all policies of the "
    "board, and needs a larger one. With a handful of contexts it is too small.",
    "(1.96 + 0.84) · standard deviation of the difference over the resamples",
    "H. S. Bloom, Evaluation Review 19 (1995)",
    tuple(f"beats_{control}_smallest_detectable" for control in TO_BEAT),
    "board",
)
BEATS = tuple(_beats(control) for control in TO_BEAT)
