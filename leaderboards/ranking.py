"""Which policies of a column are best, and which cannot be told from it."""

from collections.abc import Mapping, Sequence
from typing import Literal

from leaderboards.measures import Measure
from leaderboards.row import CONTROLS, SummaryRow

Mark = Literal["best", "tie"]


def marks(rows: Sequence[SummaryRow], measure: Measure) -> Mapping[str, Mark]:
    """Policy to mark, among the rows of one task, mode and level. Controls and rows without an interval get none.

    "best" when no other interval overlaps that of the best value; else all that overlap it are a "tie", it included.
    """
    if measure.better is None:
        return {}
    sign = 1 if measure.better == "higher" else -1
    ranked = []
    for row in rows:
        value, interval = measure.value(row), measure.interval(row)
        if row.policy not in CONTROLS and value is not None and interval is not None:
            ranked.append((sign * value, interval, row.policy))
    if not ranked:
        return {}
    _, (best_low, best_high), best = max(ranked, key=lambda entry: entry[0])
    level = [policy for _, (low, high), policy in ranked if low <= best_high and high >= best_low]
    return dict.fromkeys(level, "tie") if len(level) > 1 else {best: "best"}
