"""The table that a run prints at its end."""

from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from leaderboards.aggregate.leading_measures import (
    DIRECTIVES,
    QUESTIONS,
    TEXT,
    find_lead,
    find_mark,
)
from leaderboards.aggregate.row import (
    ALL_TASKS,
    DELTA_NLL,
    LEAKAGE,
    NEXT_TOKENS,
    OBEYED,
    PERPLEXITY,
    RIGHT,
    UNANSWERED,
    WRONG_OF_ANSWERED,
    SummaryRow,
)
from leaderboards.boards.safe_ratio import contexts_line
from leaderboards.metrics import Measure
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS, contexts_that_agree
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.levels import Level, name_levels
from policies.declaration.names import CONTROLS

POLICY_WIDTH = 18
MOST_COLUMNS = 10
# The columns of the table for programs.
NAMES = ("measure", "unit", "policy", "kind", "level", "mode", "value", "complete", "not_mastered")
# What tells of a kind of task. Of wrong answers it is their share of those given, since a rate over
# all questions falls with a model that falls silent; how many are left unanswered stands beside it.
TELLING = {
    QUESTIONS: (RIGHT, WRONG_OF_ANSWERED, UNANSWERED),
    DIRECTIVES: (OBEYED, LEAKAGE),
    TEXT: (NEXT_TOKENS, PERPLEXITY),
}


def telling(rows: Sequence[SummaryRow]) -> list[Measure]:
    """Returns the measures that tell of a run, by the kinds of its tasks: a cache that lost its
    directives may answer well, so that what is right says nothing of a task that has them. Where
    the model can do no task, the likelihood of the right answer comes first."""
    # The means count no task that the model cannot do beside others.
    means = [row for row in rows if row.task == ALL_TASKS]
    counted = next((row.mean_of for row in means if row.mean_of), [row.task for row in rows])
    leads = set()
    for row in rows:
        if row.task in counted and row.task != ALL_TASKS and row.complete:
            leads.add(find_lead(row))
    measures: list[Measure] = []
    everything: list[Measure] = []
    for lead, of_lead in TELLING.items():
        everything += of_lead
        if lead in leads:
            measures += of_lead
    chosen = (
        _with_values(measures, means)
        or _with_values(measures, rows)
        or _with_values(everything, rows)  # attacks alone lead nothing
    )
    if any(row.not_mastered and DELTA_NLL.value(row) is not None for row in means):
        return [DELTA_NLL, *chosen]
    return chosen


def _with_values(measures: Sequence[Measure], rows: Sequence[SummaryRow]) -> list[Measure]:
    """Returns the measures of which some row has a value."""
    measured = []
    for measure in measures:
        if any(measure.value(row) is not None for row in rows):
            measured.append(measure)
    return measured


def few_contexts(rows: Sequence[SummaryRow], tolerance: float = TOLERATED_LOSS) -> list[str]:
    """Says what the contexts of some rows exclude, where they are too few to show anything to be
    safe."""
    needed = contexts_that_agree(tolerance / 100)
    fewest = {}
    for row in rows:
        if row.task != ALL_TASKS and row.fewest_contexts:
            fewest[row.task] = row.fewest_contexts
    few = [count for count in fewest.values() if count < needed]
    if not few:
        return []
    advice = f"give --limit {needed}, a file of so many, or a greater --tolerance"
    return [f"{contexts_line(few, tolerance)}: {advice}"]


def terminal_table(rows: Sequence[SummaryRow], measure: Measure = RIGHT) -> ResultTable:
    """Makes the table of the means over tasks: for programs a row for each policy and level."""
    columns = [Column(name) for name in NAMES]
    plain = []
    for row in rows:
        if row.task == ALL_TASKS:
            place = (row.policy, row.at.kind, row.at.value, row.mode)
            value = measure.value(row)
            plain.append(
                (measure.name, measure.unit, *place, value, row.complete, row.not_mastered)
            )
    return ResultTable("scores", columns, plain, view=_by_level(rows, measure))


def _by_level(rows: Sequence[SummaryRow], measure: Measure) -> Group:
    """Lays out policies by level, the mean over tasks, in 80 columns: of the first mode, and of
    more than ten levels an even choice. What is best is bold, controls are dim, a dash is a cell
    that is incomplete or has no such value."""
    of_mode = [row for row in rows if row.mode == rows[0].mode]
    where, shown = _rows_of_mean_or_task(of_mode, measure)
    levels = _some(sorted({row.at for row in shown}))
    by_place = {(row.policy, row.at): row for row in shown}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold", max_width=POLICY_WIDTH)
    for name in name_levels(levels).values():
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    for policy in dict.fromkeys(row.policy for row in shown):
        cells = []
        for level in levels:
            row = by_place.get((policy, level))
            style = "bold" if find_mark(row, measure) == "best" else ""
            cells.append(Text(_number_text(measure, row), style))
        table.add_row(Text(policy), *cells, style="dim" if policy in CONTROLS else None)
    title = _title(measure, where, shown, levels)
    return Group(Text(title, "italic"), table)


def _title(
    measure: Measure, where: str, shown: Sequence[SummaryRow], levels: Sequence[Level]
) -> str:
    name = measure.title or measure.heading.capitalize()
    title = ", ".join(filter(None, (name, measure.unit, where)))
    if measure is RIGHT and shown and shown[0].chance is not None:
        title += f" (guessing without the text: {shown[0].chance:.1f})"
    if levels and levels[0].declared.note:
        title += f", {levels[0].declared.note}"
    return title


def _rows_of_mean_or_task(
    rows: Sequence[SummaryRow], measure: Measure
) -> tuple[str, Sequence[SummaryRow]]:
    """Returns the rows of the mean over tasks; where the model cannot do the one task of the run,
    those of it."""
    of_mean = [row for row in rows if row.task == ALL_TASKS]
    of_tasks = [row for row in rows if row.task != ALL_TASKS]
    tasks = {row.task for row in of_tasks}
    # A task that enters no mean would else leave nothing to print.
    if len(tasks) == 1 and all(measure.value(row) is None for row in of_mean):
        return tasks.pop(), of_tasks
    counted = {task for row in of_mean for task in row.mean_of}
    # The mean of directives obeyed is over the tasks that have directives.
    having: dict[str, None] = {}
    for row in rows:
        if row.task in counted and measure.value(row) is not None:
            having[row.task] = None
    if counted <= set(having):
        return "mean over tasks", of_mean
    return f"mean over {', '.join(having)}", of_mean


def _some(levels: Sequence[Level]) -> list[Level]:
    """Chooses levels at even distances, of few all of them."""
    count = min(len(levels), MOST_COLUMNS)
    last = len(levels) - 1
    # A single level has no distance to the next.
    steps = max(1, count - 1)
    return [levels[round(number * last / steps)] for number in range(count)]


def _number_text(measure: Measure, row: SummaryRow | None) -> str:
    """Writes a number in five characters at most, so that ten columns fit."""
    if row is None:
        return ""
    value = measure.value(row)
    text = measure.text(value)
    if value is not None and len(text) > 5:  # as -0.415 is
        digits = max(0, measure.digits - len(text) + 5)
        text = f"{value * measure.factor:z.{digits}f}"
    # 100.0 says no more than 100, and is wider.
    if len(text) > 4 and text.startswith("100"):
        return text[:-2]
    return text
