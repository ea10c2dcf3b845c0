"""Tells whether a policy beats a control at the same realised budget, and which difference could have been seen."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from leaderboards.aggregate.comparison.duel import UNDECIDED, MeanDifference, Verdict
from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.boards.area import areas, last_realised
from leaderboards.boards.declaration import SIGNS, BoardProfiles, DerivedMeasure, TableCell
from leaderboards.boards.profiles import Profile
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.bootstrap import DIGITS, Blank, FloatArray
from leaderboards.statistics.significance import ALPHA, POWER, StudentTest, correct_p, fewest_clusters, step_down_levels
from policies.declaration.names import CONTROLS, TO_BEAT

TOO_FEW = "{} contexts are too few to tell any difference: {} are needed"
NO_SPREAD = "all resamples are equal"
NO_VALUE = "some resamples have no value"
NOTHING_REMOVED = "one of them removes nothing"
A_CONTROL = "a control"
OTHER_LEVELS = "it has levels of another kind than the control"


@dataclass(frozen=True)
class Against:
    """A policy against another at the same realised budget."""

    # Of the areas in points, this one minus the other. On a board its interval is that of the corrected test.
    difference: MeanDifference
    span: float  # both areas are over the realised ratios from 0 to this one, as far as both go
    test: StudentTest
    p: float  # corrected over the family of the board

    @property
    def verdict(self) -> Verdict:
        if self.p >= ALPHA:
            return UNDECIDED
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def smallest(self) -> float | Blank:
        """Returns the smallest true difference, in points, that one test by itself tells from 0 four times in five."""
        return self.test.smallest() or Blank(NO_SPREAD)


def against(one: Profile, other: Profile) -> Against | Blank:
    """Returns one test by itself, not corrected. Blank from fewer contexts than can be told from chance."""
    found = _differences(one, other)
    if isinstance(found, Blank):
        return found
    differences, span = found
    test = area_test(differences, min(one.contexts, other.contexts))
    if isinstance(test, Blank):
        return test
    return Against(MeanDifference(test.mean, *test.interval()), span, test, test.p)


def area_test(differences: FloatArray, contexts: int) -> StudentTest | Blank:
    """Tests a difference of areas, as measured and as resampled, of shape (1 + resamples,); ``contexts``: of the task
    that has fewest. Of these are the degrees of freedom, also over several tasks, which may vary in just one of them;
    and resamples vary too little by the root of n / (n - 1)."""
    if contexts < fewest_clusters():
        return Blank(TOO_FEW.format(contexts, fewest_clusters()))
    error = float(np.std(differences[1:], ddof=1)) * math.sqrt(contexts / (contexts - 1))
    if np.isnan(error):
        return Blank(NO_VALUE)
    return StudentTest(
        float(differences[0]), error if error > 10.0**-DIGITS else 0.0, contexts - 1, 2.0 ** (1 - contexts)
    )


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
    corrected = dict(duels)
    for names, level in levels.items():
        duel = duels[names]
        if isinstance(duel, Against):
            # The interval is that of the test at Holm's level: a reader would take a narrower one for a verdict.
            difference = MeanDifference(duel.difference.mean, *duel.test.interval(level))
            corrected[names] = replace(duel, difference=difference, p=family.p[names])
    return corrected


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
        line="the policy’s area minus the control’s, in points, from the full cache to the highest realised ratio that "
        "both reach (the command compare starts at the lowest asked ratio and finds larger differences); verdict and "
        "interval come from a test that is corrected by Holm’s method over the board",
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


def _cell(found: Against) -> TableCell:
    verdict = found.verdict
    text = f"{SIGNS[verdict]} {verdict}".strip()
    return TableCell(text, found.difference.text(), found.difference.mean, tone=verdict)


BEATS_DEFINITION = Definition(
    "Beats random? Beats recency?",
    "The area minus that of the control, both over the realised ratios from 0 to where the shorter curve ends, with "
    "its paired interval. A pooled difference of a comparison is over the asked levels alone, without the piece from "
    "the full cache to the lowest of them, and is larger. Better or worse where p, by Student’s t with the standard "
    "error of the resamples and one degree of freedom less than the task with the fewest contexts has, corrected by "
    "Holm’s method over all policies and both controls of a board, is "
    f"below {ALPHA:g}; else {UNDECIDED}. The interval is that of the corrected test, wider than one of 95 %, and "
    f"leaves out 0 only where the verdict says so. Blank from fewer than {fewest_clusters()} contexts of a task.",
    "t = mean / (standard deviation over the resamples · √(n / (n − 1))), with n contexts; p ≥ 2^(1 − n)",
    "Student, Biometrika 6 (1908)",
    chapter="board",
)
SMALLEST_DETECTABLE = Definition(
    "Smallest detectable difference",
    f"The smallest true difference that a sample like this one tells from 0, at two-sided {ALPHA:g}, "
    f"{POWER:.0%} of the time, in one test by itself: the verdict beside it is corrected for all policies of the "
    "board, and needs a larger one.",
    "(t(0.975) + t(0.8)) · standard error, with the degrees of freedom of the test",
    "H. S. Bloom, Evaluation Review 19 (1995)",
    tuple(f"beats_{control}_smallest_detectable" for control in TO_BEAT),
    "board",
)
BEATS = tuple(_beats(control) for control in TO_BEAT)
