"""The area under the curve of F1 over the realised ratio."""

from dataclasses import dataclass

import numpy as np

from leaderboards.aggregate.row import written_interval
from leaderboards.boards.cells import Cell
from leaderboards.boards.declaration import DerivedMeasure, each
from leaderboards.boards.profiles import FLAT, Profile
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.resampling import Blank, Estimate


@dataclass(frozen=True)
class Area:
    """The mean height of the curve of F1."""

    f1: Estimate  # in percent
    span: float  # the realised ratio at which the curve ends


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
    return Area(profile.estimate(found), float(span[0]))


def _cell(area: Area) -> Cell:
    return Cell(f"{area.f1.mean:.1f}", written_interval(area.f1.interval) if area.f1.interval else "", area.f1.mean)


AREA = DerivedMeasure(
    name="area",
    unit="percent",
    better="higher",
    bounds=(0, 100),
    line="mean F1 over the realised ratio, percent, with its 95 % interval",
    definition=Definition(
        "Area under F1",
        "The mean height of the curve of F1 over the realised ratio, from the full cache at 0 to the last point, "
        "by the trapezoid rule, in percent like F1. What lies beyond the last point is not known and not counted. "
        "Policies are ranked over the span that all ranked ones share.",
        "area = (1 / span) ∫ F1(r) dr from r = 0 to span",
        names=("n", "contexts", "answers"),
        chapter="board",
    ),
    of_board=each(area_under_curve),
    columns={
        "area": "f1.mean",
        "area_low": "f1.low",
        "area_high": "f1.high",
        "area_span": "span",
        "questions": "f1.n",
    },
    heading="F1 area",
    cell=_cell,
)
