"""Finds the best policies of a column, and those that cannot be told from them."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from leaderboards.aggregate.row import HALLUCINATION, WRONG_OF_ANSWERED, SummaryRow
from leaderboards.metrics import CURVES, Measure
from leaderboards.statistics.bootstrap import DIGITS, FloatArray, percentile_intervals
from policies.declaration.names import CONTROLS

Mark = Literal["best", "tie"]

# A model that falls silent has the lowest hallucination rate: whoever is best by it may answer nothing.
RANKED = tuple(measure for measure in CURVES if measure.better is not None and measure is not HALLUCINATION)


def marks(values: Mapping[str, FloatArray], higher_is_better: bool = True) -> Mapping[str, Mark]:
    """Returns the mark of each policy. ``values``: of a measure as measured and in each of the same resamples, shape (1
    + resamples,).

    "best" where the paired differences of all others from the best value leave out 0; else those whose do not are a
    "tie", it included.
    """
    if len(values) < 2:  # nothing was compared
        return {}
    table = np.stack(list(values.values()))
    best = int(np.argmax(table[:, 0] if higher_is_better else -table[:, 0]))
    lows, highs = percentile_intervals(np.round(table[best, 1:] - table[:, 1:], DIGITS))
    level = [policy for policy, low, high in zip(values, lows, highs, strict=True) if low <= 0 <= high]
    return dict.fromkeys(level, "tie") if len(level) > 1 else {level[0]: "best"}


def mark_leaders(
    rows: Mapping[str, SummaryRow], means: Mapping[str, Mapping[str, FloatArray]]
) -> dict[str, SummaryRow]:
    """Returns the rows of a task, mode and level by policy, each with what it is best and tied in. ``means``: by policy
    and field of the row, resampled. Controls and rows without an interval are ranked in nothing. One that gives hardly
    any answers is not ranked by how many of them are wrong."""
    levels_by_mark: dict[str, dict[Mark, list[str]]] = {policy: {"best": [], "tie": []} for policy in rows}
    for measure in RANKED:
        values = {
            policy: np.concatenate([[value], by_level[measure.field]])
            for policy, by_level in means.items()
            if policy not in CONTROLS
            and not (measure is WRONG_OF_ANSWERED and rows[policy].few_answers)
            and measure.field in by_level
            and (value := measure.value(rows[policy])) is not None
            and not np.isnan(by_level[measure.field]).any()
        }
        for policy, mark in marks(values, measure.better == "higher").items():
            levels_by_mark[policy][mark].append(measure.name)
    return {
        policy: row.model_copy(update={"best_in": tuple(levels["best"]), "tied_in": tuple(levels["tie"])})
        for (policy, levels), row in zip(levels_by_mark.items(), rows.values(), strict=True)
    }


def mark_of(row: SummaryRow | None, measure: Measure) -> Mark | None:
    """Returns the mark that stands beside a value."""
    if row is None or measure not in RANKED:
        return None
    return "best" if measure.name in row.best_in else "tie" if measure.name in row.tied_in else None
