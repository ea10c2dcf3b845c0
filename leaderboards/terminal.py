"""The table that a run prints at its end."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from leaderboards.measures import F1, Measure
from leaderboards.ranking import marks
from leaderboards.row import ALL_TASKS, CONTROLS, SummaryRow
from leaderboards.tables import written_ratio

POLICY_WIDTH = 18
MOST_RATIOS = 10


def terminal_table(rows: Sequence[SummaryRow], measure: Measure = F1) -> Table:
    """Policies by asked ratio, the mean over tasks, in 80 columns.

    Of the first mode that the rows hold. Of more than ten ratios an even choice is shown, both ends
    among them. What is best is bold, controls are dim, a dash is a cell that is incomplete or has no such value.
    """
    own = [row for row in rows if row.task == ALL_TASKS and row.mode == rows[0].mode]
    ratios = _some(sorted({row.ratio for row in own}))
    found = {(row.policy, row.ratio): row for row in own}
    standing = {ratio: marks([row for row in own if row.ratio == ratio], measure) for ratio in ratios}
    title = f"{measure.title}, {measure.unit}, mean over tasks"
    if measure is F1 and own and own[0].chance is not None:
        title += f" (guessing without the text: {own[0].chance:.1f})"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True, overflow="ellipsis", max_width=POLICY_WIDTH)
    for ratio in ratios:
        table.add_column(written_ratio(ratio), justify="right", no_wrap=True)
    for policy in dict.fromkeys(row.policy for row in own):
        cells = []
        for ratio in ratios:
            row = found.get((policy, ratio))
            best = standing[ratio].get(policy) == "best"
            cells.append(Text(_written(measure, row), style="bold" if best else ""))
        table.add_row(Text(policy), *cells, style="dim" if policy in CONTROLS else None)
    return table


def _some(ratios: Sequence[float]) -> list[float]:
    if len(ratios) <= MOST_RATIOS:
        return list(ratios)
    step = (len(ratios) - 1) / (MOST_RATIOS - 1)
    return [ratios[round(number * step)] for number in range(MOST_RATIOS)]


def _written(measure: Measure, row: SummaryRow | None) -> str:
    """Four characters at most, so that ten columns fit."""
    if row is None:
        return ""
    text = measure.text(measure.value(row))
    return text[:-2] if len(text) > 4 and text.startswith("100") else text[:5]
