"""The area under the curve of what leads a task over the realised ratio."""

from dataclasses import dataclass

import numpy as np

from leaderboards.aggregate.lead import ABOVE_CHANCE, LEAST
from leaderboards.boards.declaration import DerivedMeasure, TableCell, for_each_policy
from leaderboards.boards.profiles import FLAT, ONE_LEVEL, Profile
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.bootstrap import Blank, Estimate, FloatArray
from leaderboards.statistics.text import interval_text
from policies.declaration.names import FULL


@dataclass(frozen=True)
class Area:
    """The mean height of the curve."""

    height: Estimate  # in percent
    span: float  # the realised ratio at which the curve ends


def areas(profile: Profile, to: FloatArray | None = None) -> FloatArray | Blank:
    """Returns the area under what leads the task over the realised ratio by the trapezoid rule, divided by its span,
    hence in percent.

    Shape (1 + resamples,). From the full cache at 0 to the last realised ratio: what lies beyond is not known and not
    counted, so that policies of different spans are compared over the span that they share: ``to``, of the same shape,
    ends all areas there, on the line between two points. Where realised ratios do not ascend with what was asked, the
    points are taken by realised ratio. Of a policy that removes no tokens, such as a fault, it is over its levels.
    """
    if isinstance(profile.lead, Blank):
        return profile.lead
    if profile.no_levels and profile.policy != FULL:
        return Blank(profile.no_levels, ONE_LEVEL)
    ratios, heights = profile.places, profile.lead
    if isinstance(ratios, Blank):
        return ratios
    if (np.diff(ratios, axis=1) < 0).any():
        order = np.argsort(ratios, axis=1, kind="stable")
        ratios, heights = (np.take_along_axis(array, order, axis=1) for array in (ratios, heights))
    end = ratios[:, -1] if to is None else np.minimum(to, ratios[:, -1])
    widths, rises = np.diff(ratios, axis=1), np.diff(heights, axis=1)
    taken = np.clip(end[:, None] - ratios[:, :-1], 0, widths)  # of the width of each piece
    shares = np.divide(taken, widths, out=np.zeros_like(widths), where=widths > 0)
    total = (taken * (heights[:, :-1] + shares * rises / 2)).sum(axis=1)
    span = end - ratios[:, 0]
    means: FloatArray = np.divide(total, span, out=heights.mean(axis=1), where=span > FLAT)
    return means


def last_realised(profile: Profile) -> FloatArray | Blank:
    """Returns the highest realised ratio, where the curve ends, shape (1 + resamples,)."""
    if isinstance(profile.places, Blank):
        return profile.places
    highest: FloatArray = profile.places.max(axis=1)
    return highest


def area_under_curve(profile: Profile) -> Area | Blank:
    """Returns the area over the whole span of the policy; see :func:`areas`. Of the full cache, which spans nothing,
    its height."""
    area, span = areas(profile), last_realised(profile)
    if isinstance(area, Blank):
        return area
    if isinstance(span, Blank):
        return span
    return Area(profile.estimate(area), float(span[0]))


def _cell(area: Area) -> TableCell:
    return TableCell(
        f"{area.height.mean:.1f}",
        interval_text(area.height.interval) if area.height.interval else "",
        area.height.mean,
    )


LEADS = Definition(
    "Main measure of a task",
    "The measure by which policies are ranked on a task. For questions about a text it is the share of right answers, "
    "in percent. Where a task has directives, it is the mean of directives obeyed and of what does not leak under a "
    "defence (100 minus "
    "leakage), in percent: a cache that lost its directives may answer well. For running text it is next-token "
    "accuracy. Over several tasks it is the mean of each task’s main measure.",
    "main measure = percent right, or (obeyed + 100 − leakage under a defence) / 2, or next-token accuracy",
    chapter="board",
)
MASTERED = Definition(
    "A task that the model cannot do",
    f"With the full cache, fewer than {LEAST:g} % are right, or less than {ABOVE_CHANCE:g} points above chance; where "
    f"a task has directives, fewer than {LEAST:g} % of them are obeyed, or less than {ABOVE_CHANCE:g} points more than "
    "silence obeys; of running text, next-token accuracy is less than "
    f"{ABOVE_CHANCE:g} points above chance. There every loss is small, and means "
    "nothing: rank, area, safe ratio and verdicts are blank, and the task enters no mean over tasks unless "
    "one asks for it.",
    names=("not_mastered", "mean_of"),
    chapter="board",
)
AREA = DerivedMeasure(
    name="area",
    unit="percent",
    better="higher",
    bounds=(0, 100),
    line="mean of the task’s main measure over all realised ratios, in percent, with its 95 % interval",
    definition=Definition(
        "Area",
        "The mean height of the curve of the task’s main measure over the realised ratio, from the full cache at 0 to "
        "the last point, by the trapezoid rule, in percent. What lies beyond the last point is not known and not "
        "counted. "
        "Policies are compared over the span that both share. Of faults, which remove no tokens, it is over the rate. "
        "Blank of what has one level, as int4.",
        "area = (1 / span) ∫ main measure(r) dr from r = 0 to span",
        names=("n", "contexts", "answers"),
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
