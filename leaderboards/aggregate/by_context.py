"""Averages a measure in each context of a cell: intervals are made of these means, and policies compared by them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leaderboards.metrics import MEASURES, Measure
from leaderboards.statistics.bootstrap import (
    ENOUGH,
    FloatArray,
    cluster_sums,
    percentile_interval,
    resampled_ratios,
)
from leaderboards.statistics.intervals import (
    context_values,
    difference_interval,
    interval_over_tasks,
    mean_interval,
)


@dataclass(frozen=True)
class ByContext:
    """A measure of a cell of one task. ``values``: one for each context in the unit of the row, whose mean is the
    measure before :attr:`~leaderboards.metrics.Measure.of_mean`."""

    values: FloatArray
    gains: FloatArray | None = (
        None  # of a paired measure, whose values are between -1 and 1, what it is above 0
    )
    resampled: FloatArray | None = (
        None  # of an unbounded measure, what it comes to in each resample
    )

    @property
    def contexts(self) -> int:
        return len(self.values)


def by_context(
    measure: Measure,
    numbers: FloatArray,
    contexts: NDArray[np.intp],
    weights: FloatArray | None,
    seed: int,
    resamples: int,
) -> ByContext:
    """Sums up the numbers of some answers, NaN where one has none, context by context."""
    sums, counts = cluster_sums(numbers, contexts, weights)
    values = context_values(sums, counts)
    if measure.bounds is None:
        many = len(values) > 1
        return ByContext(
            values,
            resampled=resampled_ratios(np.stack([sums, counts]), seed, resamples) if many else None,
        )
    if measure.bounds[0] == 0:
        return ByContext(values)
    gains, _ = cluster_sums(np.maximum(numbers, 0), contexts, weights)
    return ByContext(values, gains=context_values(gains, counts))


def intervals_of(by_measure: Mapping[str, Sequence[ByContext]]) -> dict[str, float]:
    """Returns the ends of the interval of each measure as columns of a row. ``by_measure``: by column, what it is in
    each task that the row is the mean of."""
    columns: dict[str, float] = {}
    alike: dict[
        tuple[int, ...], list[str]
    ] = {}  # measures of shares that have as many contexts are computed at once
    for name, parts in by_measure.items():
        measure = MEASURES[name]
        if measure.bounds is None:
            ends = _bootstrap(measure, parts)
        elif measure.bounds[0] == 0:
            alike.setdefault(tuple(part.contexts for part in parts), []).append(name)
            continue
        else:
            ends = _of_differences(parts)
        if ends is not None:
            columns[f"{name}_low"], columns[f"{name}_high"] = ends
    for names in alike.values():
        columns |= _of_shares({name: by_measure[name] for name in names})
    return columns


def _of_shares(by_measure: Mapping[str, Sequence[ByContext]]) -> dict[str, float]:
    """Does the same of measures between 0 and a highest value, which have as many contexts in each task."""
    tops = np.array([MEASURES[name].bounds[1] for name in by_measure])  # type: ignore[index]
    of_tasks = [
        np.stack(list(of_task))
        for of_task in zip(*(_values(one) for one in by_measure.values()), strict=True)
    ]
    scaled = [of_task / tops[:, None] for of_task in of_tasks]
    ends = [mean_interval(of_task) for of_task in scaled]
    means = np.stack([of_task.mean(axis=1) for of_task in scaled])
    lows, highs = (np.stack(list(of_tasks)) for of_tasks in zip(*ends, strict=True))
    low, high = interval_over_tasks(means, lows, highs)
    columns: dict[str, float] = {}
    for place, name in enumerate(by_measure):
        columns[f"{name}_low"], columns[f"{name}_high"] = (
            float(low[place] * tops[place]),
            float(high[place] * tops[place]),
        )
    return columns


def _values(parts: Sequence[ByContext]) -> list[FloatArray]:
    return [part.values for part in parts]


def _of_differences(parts: Sequence[ByContext]) -> tuple[float, float]:
    ends = []
    for part in parts:
        assert part.gains is not None
        ends.append(difference_interval(part.gains, part.gains - part.values))
    means = np.array([part.values.mean() for part in parts])
    low, high = interval_over_tasks(
        means, *(np.array(of_tasks) for of_tasks in zip(*ends, strict=True))
    )
    return float(low), float(high)


def _bootstrap(measure: Measure, parts: Sequence[ByContext]) -> tuple[float, float] | None:
    """Returns the percentile interval of the mean over tasks; None where many resamples have no value."""
    arrays = [part.resampled for part in parts if part.resampled is not None]
    if measure.of_mean is not None:
        arrays = [measure.of_mean(array) for array in arrays]
    resampled = np.mean(arrays, axis=0)
    known = resampled[~np.isnan(resampled)]
    return percentile_interval(known) if len(known) >= ENOUGH * len(resampled) else None
