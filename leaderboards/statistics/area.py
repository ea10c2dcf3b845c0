"""Computes the area under curves over the realised ratio, as a mean height, and its interval."""

from collections.abc import Sequence

import numpy as np

from leaderboards.statistics.bootstrap import FLAT
from leaderboards.statistics.context_sums import FloatArray
from leaderboards.statistics.intervals import interval_over_tasks, mean_interval


def mean_heights(places: FloatArray, heights: FloatArray, end: FloatArray) -> FloatArray:
    """Returns the mean height of each curve, shape (curves,): the area under it by the trapezoid
    rule, from its first place to ``end``, divided by the width between the two. A curve without a
    width has the mean of its heights.

    ``places``, ``heights``: shape (curves, levels), in any order of the levels. ``end``: shape
    (curves,)."""
    # A realised ratio is measured and need not rise with the asked one. Where a curve went back,
    # the rule would subtract what lies under it.
    if (np.diff(places, axis=1) < 0).any():
        order = np.argsort(places, axis=1, kind="stable")
        places = np.take_along_axis(places, order, axis=1)
        heights = np.take_along_axis(heights, order, axis=1)
    starts = places[:, :-1]
    widths = np.diff(places, axis=1)
    rises = np.diff(heights, axis=1)
    # Of the piece in which ``end`` lies only the part before it counts, and of those behind it
    # nothing.
    taken = np.clip(end[:, None] - starts, 0, widths)  # of the width of each piece
    # Two levels may come to the same realised ratio: a piece without width has no share to take.
    shares = np.divide(taken, widths, out=np.zeros_like(widths), where=widths > 0)
    # Half way through what is taken, as a curve is straight between two levels.
    middles = heights[:, :-1] + shares * rises / 2
    areas = (taken * middles).sum(axis=1)
    spans = end - places[:, 0]
    mean_of_levels = heights.mean(axis=1)
    # A quotient of an area and a width that are both noise would be any number.
    means: FloatArray = np.divide(areas, spans, out=mean_of_levels, where=spans > FLAT)
    return means


def area_interval(by_task: Sequence[Sequence[FloatArray]]) -> tuple[float, float] | None:
    """Returns both ends for the mean over tasks of areas, a share; None where a measure has fewer
    than two contexts. Where several measures lead a task, its ends are the means of theirs: they
    may vary together.

    ``by_task``: for each measure that leads a task the area of each context, a share, shape
    (contexts,)."""
    means, lows, highs = [], [], []
    for by_measure in by_task:
        if min(map(len, by_measure)) < 2:
            return None
        of_measures = [heights.mean() for heights in by_measure]
        ends = [mean_interval(heights) for heights in by_measure]
        low, high = np.mean(ends, axis=0)
        means.append(np.mean(of_measures))
        lows.append(low)
        highs.append(high)
    lowest, highest = interval_over_tasks(np.array(means), np.array(lows), np.array(highs))
    return float(lowest), float(highest)
