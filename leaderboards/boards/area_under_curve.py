"""The area under the curve of what leads a task over the realised ratio, and whether it is above
that of a control."""

from dataclasses import dataclass

import numpy as np

from leaderboards.aggregate.duels import UNDECIDED
from leaderboards.aggregate.leading_measures import ABOVE_CHANCE, LEAST
from leaderboards.aggregate.pooled import Pooled
from leaderboards.boards.declaration import (
    SIGNS,
    BoardProfiles,
    DerivedMeasure,
    TableCell,
    for_each_policy,
)
from leaderboards.boards.profiles import ONE_LEVEL, Profile
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.area import area_interval, mean_heights
from leaderboards.statistics.bootstrap import Blank, Estimate, FloatArray
from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import MeanDifference, fewest_clusters
from leaderboards.statistics.text import interval_text
from policies.declaration.names import CONTROLS, FULL, RANDOM, TO_BEAT

A_CONTROL = "a control"
OTHER_LEVELS = "it has no level in common with the control"


@dataclass(frozen=True)
class Area:
    height: Estimate  # mean of the curve, in percent
    span: float  # the realised ratio at which the curve ends


def curve_end(profile: Profile) -> float | Blank:
    """Returns the place at which the curve of a policy ends: its last realised ratio, or level of a
    fault."""
    if isinstance(profile.lead, Blank):
        return profile.lead
    if profile.no_levels and profile.policy != FULL:
        return Blank(profile.no_levels, ONE_LEVEL)
    if isinstance(profile.places, Blank):
        return profile.places
    return float(profile.places.max())


def mean_height(profile: Profile, end: float) -> float:
    """Returns the mean height of the curve of what leads the tasks, in percent: from the full cache
    at 0 to ``end`` by the trapezoid rule. Of the full cache, which spans nothing, its height."""
    assert not isinstance(profile.lead, Blank)
    return float(_mean_heights(profile, profile.lead[None], end)[0])


def heights_by_context(profile: Profile, end: float) -> list[FloatArray]:
    """Returns the same of each context, for each task an array of shape (contexts,)."""
    assert not isinstance(profile.leads, Blank)
    by_task = []
    for of_task in profile.leads:
        there = np.any([lead.there for lead in of_task], axis=0)
        # A context that lacks one of the measures stands in it with the mean of all (see
        # :func:`context_values`), which moves neither the mean nor the difference of two policies.
        curves = np.mean([lead.heights[:, there] for lead in of_task], axis=0)
        by_task.append(_mean_heights(profile, curves.T, end))
    return by_task


def _mean_heights(profile: Profile, curves: FloatArray, end: float) -> FloatArray:
    """Returns the mean height of curves from 0 to ``end``. ``curves``: shape (curves, 1 + levels);
    returns shape (curves,)."""
    assert not isinstance(profile.places, Blank)
    count = len(curves)
    places = np.tile(profile.places, (count, 1))
    return mean_heights(places, curves, np.full(count, end))


def _interval(profile: Profile, end: float) -> tuple[float, float] | None:
    """Returns the interval of the height, in percent."""
    assert not isinstance(profile.leads, Blank)
    by_task = []
    for of_task in profile.leads:
        by_measure = []
        for lead in of_task:
            curves = lead.heights[:, lead.there].T
            # Intervals of bounded means take shares.
            by_measure.append(_mean_heights(profile, curves, end) / 100)
        by_task.append(by_measure)
    ends = area_interval(by_task)
    if ends is None:
        return None
    low, high = ends
    return 100 * low, 100 * high


def area_under_curve(profile: Profile) -> Area | Blank:
    """Returns the area over the whole span of the policy."""
    end = curve_end(profile)
    if isinstance(end, Blank):
        return end
    height = Estimate.within(mean_height(profile, end), _interval(profile, end), profile.questions)
    return Area(height, end)


def _cell(area: Area) -> TableCell:
    height, interval = area.height.mean, area.height.interval
    detail = interval_text(interval) if interval else ""
    return TableCell(f"{height:.1f}", detail, height)


LEADS = Definition(
    "Main measure of a task",
    "The measure by which policies are ranked on a task. For questions about a text it is the "
    "share of right answers, in percent. Where a task has directives, it is the mean of directives "
    "obeyed and of what does not leak under a defence (100 minus leakage), in percent: a cache "
    "that lost its directives may answer well. For running text it is next-token accuracy. Over "
    "several tasks it is the mean of each task’s main measure.",
    "main measure = percent right, or (obeyed + 100 − leakage under a defence) / 2, or next-token "
    "accuracy",
    chapter="board",
)
MASTERED = Definition(
    "A task that the model cannot do",
    f"With the full cache, fewer than {LEAST:g} % are right, or less than {ABOVE_CHANCE:g} points "
    f"above chance. Where a task has directives: fewer than {LEAST:g} % of them are obeyed, or "
    f"less than {ABOVE_CHANCE:g} points more than silence obeys. Of running text: next-token "
    f"accuracy is less than {ABOVE_CHANCE:g} points above chance. There a small loss means "
    "nothing: all numbers are shown, beside what the model itself has, the rise of the right "
    "answer’s NLL first, and ranks and verdicts are withheld. The task enters no mean over tasks "
    "unless one asks for it, or the model can do none: then the mean is over all, without ranks "
    "and verdicts.",
    chapter="board",
)
AREA = DerivedMeasure(
    name="area",
    better="higher",
    line="mean height of the curve of the task’s main measure, from the full cache on, in percent",
    definition=Definition(
        "Area",
        "The mean height of the curve of the task’s main measure over the realised ratio, from the "
        "full cache at 0 to the last point, by the trapezoid rule, in percent. What lies beyond "
        "the last point is not known and not counted. Policies are compared over the span that "
        "both share. Of faults, which remove no tokens, it is over the rate. Blank of what has one "
        "level, as int4.",
        "area = (1 / span) ∫ main measure(r) dr from r = 0 to span",
        chapter="board",
    ),
    of_board=for_each_policy(area_under_curve),
    columns={
        "area": "height.mean",
        "area_low": "height.low",
        "area_high": "height.high",
        "area_span": "span",
        "questions": "height.n",
    },
    heading="area",
    cell=_cell,
    parts=(LEADS, MASTERED),
)


@dataclass(frozen=True)
class Unjudged:
    """The difference from a control where the model cannot do the task: a number without a
    verdict."""

    difference: MeanDifference
    end: float
    withheld: str  # why there is no verdict
    verdict: None = None
    smallest: None = None
    p: None = None


def _against(board: BoardProfiles, policy: str, control: str) -> Pooled | Unjudged | Blank:
    """Returns the comparison with a control, which is that of the command compare."""
    if policy in CONTROLS:
        return Blank(A_CONTROL)
    if control not in board.profiles:
        return Blank(f"{control} was not run")
    profile = board.profiles[policy]
    end = curve_end(profile)
    if isinstance(end, Blank):
        return end
    line = board.against.get((policy, control))
    if line is None:
        return Blank(OTHER_LEVELS)
    # Before the number of contexts is looked at: no number of them gives a verdict where the model
    # cannot do the task.
    if profile.withheld:
        return Unjudged(line.difference, line.end, profile.withheld)
    if line.too_few:
        return Blank(line.reason)
    return line


def _withheld(line: Pooled | Unjudged) -> str:
    if isinstance(line, Unjudged):
        return line.withheld
    return ""


def _beats_cell(line: Pooled | Unjudged) -> TableCell:
    difference = line.difference
    if isinstance(line, Unjudged):
        return TableCell(difference.text, sort=difference.mean)
    text = f"{SIGNS[line.verdict]} {line.verdict}".strip()
    return TableCell(text, difference.text, difference.mean, tone=line.verdict)


def _beats(control: str) -> DerivedMeasure[Pooled | Unjudged | Blank]:
    name = f"beats_{control}"

    def against_control(board: BoardProfiles) -> dict[str, Pooled | Unjudged | Blank]:
        return {policy: _against(board, policy, control) for policy in board.profiles}

    return DerivedMeasure(
        name=name,
        better="higher",
        line="the policy’s area minus the control’s, in points, up to the highest realised ratio "
        "that both reach, with the interval of the corrected test; compare shows the same area",
        definition=BEATS_DEFINITION,
        of_board=against_control,
        columns={
            f"{name}_verdict": "verdict",
            f"{name}_difference": "difference.mean",
            f"{name}_difference_low": "difference.low",
            f"{name}_difference_high": "difference.high",
            f"{name}_span": "end",
            f"{name}_smallest_detectable": "smallest",
            f"{name}_p": "p",
        },
        heading=f"beats {control}?",
        cell=_beats_cell,
        withheld=_withheld,
    )


BEATS_DEFINITION = Definition(
    "Better than another policy, by area",
    "The area minus that of the other, on the same questions, both over the realised ratios from "
    "0 to where the shorter curve ends. It is the verdict of a board against random and recency. "
    "A comparison shows it below the mean of tasks at each level. The mean over tasks is "
    "unweighted; a task that the model cannot do enters nothing. Better or worse where p, by "
    f"Student’s t over the contexts of each task, is below {ALPHA:g} after Holm’s correction over "
    f"both controls, or over all other opponents of a comparison; else {UNDECIDED}, which does "
    "not mean equal. The interval is that of the corrected test. p is never below the chance that "
    "all contexts which differ do so on one side. There is no test of fewer than "
    f"{fewest_clusters()} contexts of a task, nor where the two differ in fewer. What a board "
    "shows is not corrected over its policies: of 20 that equal a control, one may look better.",
    "t = mean of the tasks’ means / √(Σ s² / n) · number of tasks, by Welch’s degrees of freedom",
    "B. L. Welch, Biometrika 34 (1947)",
    chapter="board",
)
BEATS = tuple(_beats(control) for control in TO_BEAT)
BEATS_RANDOM = BEATS[TO_BEAT.index(RANDOM)]
