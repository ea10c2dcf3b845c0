"""Averages a measure in each context of a cell: intervals are made of these means, and policies
compared by them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leaderboards.metrics import MEASURES, Measure
from leaderboards.statistics.bootstrap import (
    ENOUGH,
    FloatArray,
    percentile_interval,
    resampled_ratios,
)
from leaderboards.statistics.context_sums import sum_values_present
from leaderboards.statistics.intervals import (
    difference_interval,
    interval_over_tasks,
    mean_interval,
)


@dataclass(frozen=True)
class ByContext:
    """A measure of a cell of one task. ``values``: one for each context in the unit of the row,
    whose mean is the measure before :attr:`~leaderboards.metrics.Measure.of_mean`."""

    values: FloatArray
    gains: FloatArray | None = (
        None  # of a paired measure, whose values are between -1 and 1, what it is above 0
    )
    resampled: FloatArray | None = (
        None  # of an unbounded measure, what it comes to in each resample
    )

    @property
    def contexts(self) -> int:
        """Counts the contexts that have a value."""
        return len(self.values)


def by_context(
    measure: Measure,
    numbers: FloatArray,
    contexts: NDArray[np.intp],
    weights: FloatArray | None,
    seed: int,
    resamples: int,
) -> ByContext:
    """Sums up the numbers of some answers, NaN where an answer has none, context by context.
    ``numbers``, ``contexts``, ``weights``: of each answer, shape (answers,)."""
    sums = sum_values_present(numbers, contexts, weights)
    values = sums.values
    # Only values without bounds are resampled: their interval cannot be taken from a binomial one.
    if measure.bounds is None:
        if sums.contexts < 2:
            return ByContext(values)
        return ByContext(values, resampled=resampled_ratios(sums, seed, resamples))
    if measure.bounds[0] == 0:
        return ByContext(values)
    # A difference between -1 and 1 has the interval of its gains joined with that of its losses.
    gains = sum_values_present(np.maximum(numbers, 0), contexts, weights)
    return ByContext(values, gains=gains.values)


def interval_columns(by_measure: Mapping[str, Sequence[ByContext]]) -> dict[str, float]:
    """Returns the ends of the interval of each measure as columns of a row. ``by_measure``: by
    column, what it is in each task that the row is the mean of."""
    columns: dict[str, float] = {}
    # Measures of shares that have as many contexts are computed at once.
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, parts in by_measure.items():
        measure = MEASURES[name]
        if measure.bounds is None:
            ends = _bootstrap(measure, parts)
        elif measure.bounds[0] == 0:
            alike.setdefault(tuple(part.contexts for part in parts), []).append(name)
            continue
        else:
            ends = _combine_differences(parts)
        if ends is not None:
            columns[f"{name}_low"], columns[f"{name}_high"] = ends
    for names in alike.values():
        columns |= _combine_shares({name: by_measure[name] for name in names})
    return columns


def _combine_shares(by_measure: Mapping[str, Sequence[ByContext]]) -> dict[str, float]:
    """Does the same of measures between 0 and a highest value, which have as many contexts in each
    task."""
    tops = np.array([MEASURES[name].bounds[1] for name in by_measure])  # type: ignore[index]
    means, lows, highs = [], [], []
    for parts in zip(*by_measure.values(), strict=True):  # task by task
        values = np.stack([part.values for part in parts])  # shape (measures, contexts)
        # Intervals of bounded means take shares; measures may count to 100 or more.
        scaled = values / tops[:, None]
        low, high = mean_interval(scaled)
        means.append(scaled.mean(axis=1))
        lows.append(low)
        highs.append(high)
    lowest, highest = interval_over_tasks(np.stack(means), np.stack(lows), np.stack(highs))
    columns: dict[str, float] = {}
    for place, name in enumerate(by_measure):
        columns[f"{name}_low"] = float(lowest[place] * tops[place])
        columns[f"{name}_high"] = float(highest[place] * tops[place])
    return columns


def _combine_differences(parts: Sequence[ByContext]) -> tuple[float, float]:
    means, lows, highs = [], [], []
    for part in parts:
        assert part.gains is not None
        # Values are gains less losses.
        low, high = difference_interval(part.gains, part.gains - part.values)
        means.append(part.values.mean())
        lows.append(low)
        highs.append(high)
    lowest, highest = interval_over_tasks(np.array(means), np.array(lows), np.array(highs))
    return float(lowest), float(highest)


def _bootstrap(measure: Measure, parts: Sequence[ByContext]) -> tuple[float, float] | None:
    """Returns the percentile interval of the mean over tasks; None where many resamples have no
    value."""
    arrays = [part.resampled for part in parts if part.resampled is not None]
    # Task by task, as the row over tasks averages what each task comes to.
    if measure.of_mean is not None:
        arrays = [measure.of_mean(array) for array in arrays]
    resampled = np.mean(arrays, axis=0)
    with_value = resampled[~np.isnan(resampled)]
    if len(with_value) < ENOUGH * len(resampled):
        return None
    return percentile_interval(with_value)
