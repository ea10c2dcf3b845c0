"""The table that a run prints at its end."""

from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from leaderboards.aggregate.lead import DIRECTIVES, QUESTIONS, TEXT, lead_of, mark_of
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
from leaderboards.statistics.intervals import TOLERATED_LOSS, contexts_that_agree
from leaderboards.terminal.result_table import Column, ResultTable
from policies.declaration.levels import Level, names_of
from policies.declaration.names import CONTROLS

POLICY_WIDTH = 18
MOST_COLUMNS = 10
# for programs
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
    # which count no task that the model cannot do beside others
    means = [row for row in rows if row.task == ALL_TASKS]
    risen = any(row.not_mastered and DELTA_NLL.value(row) is not None for row in means)
    counted = next((row.mean_of for row in means if row.mean_of), [row.task for row in rows])
    leads = {
        lead_of(row)
        for row in rows
        if row.task in counted and row.task != ALL_TASKS and row.complete
    }
    measures = [
        measure for lead, of_lead in TELLING.items() if lead in leads for measure in of_lead
    ]
    everything = [measure for of_lead in TELLING.values() for measure in of_lead]
    # attacks alone lead nothing
    for chosen, of_rows in ((measures, means), (measures, rows), (everything, rows)):
        if known := [one for one in chosen if any(one.value(row) is not None for row in of_rows)]:
            return [DELTA_NLL] * risen + known
    return [DELTA_NLL] * risen


def few_contexts(rows: Sequence[SummaryRow], tolerance: float = TOLERATED_LOSS) -> list[str]:
    """Says what the contexts of some rows exclude, where they are too few to show anything to be
    safe."""
    fewest = {
        row.task: row.fewest_contexts
        for row in rows
        if row.task != ALL_TASKS and row.fewest_contexts
    }
    needed = contexts_that_agree(tolerance / 100)
    few = {task: count for task, count in fewest.items() if count < needed}
    advice = f"give --limit {needed}, a file of so many, or a greater --tolerance"
    return [f"{contexts_line(few.values(), tolerance)}: {advice}"] if few else []


def terminal_table(rows: Sequence[SummaryRow], measure: Measure = RIGHT) -> ResultTable:
    columns = [Column(name) for name in NAMES]
    plain = []
    for row in (row for row in rows if row.task == ALL_TASKS):
        place = row.policy, row.at.kind, row.at.value, row.mode
        plain.append(
            (measure.name, measure.unit, *place, measure.value(row), row.complete, row.not_mastered)
        )
    return ResultTable("scores", columns, plain, view=_by_level(rows, measure))


def _by_level(rows: Sequence[SummaryRow], measure: Measure) -> Group:
    """Lays out policies by level, the mean over tasks, in 80 columns: of the first mode, and of
    more than ten levels an even choice. What is best is bold, controls are dim, a dash is a cell
    that is incomplete or has no such value."""
    where, of_mean = _of_mean_or_task([row for row in rows if row.mode == rows[0].mode], measure)
    levels = _some(sorted({row.at for row in of_mean}))
    by_place = {(row.policy, row.at): row for row in of_mean}
    title = ", ".join(
        filter(None, (measure.title or measure.heading.capitalize(), measure.unit, where))
    )
    if measure is RIGHT and of_mean and of_mean[0].chance is not None:
        title += f" (guessing without the text: {of_mean[0].chance:.1f})"
    if levels and levels[0].declared.note:
        title += f", {levels[0].declared.note}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold", max_width=POLICY_WIDTH)
    for name in names_of(levels).values():
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    for policy in dict.fromkeys(row.policy for row in of_mean):
        rows_of = [by_place.get((policy, level)) for level in levels]
        styles = ["bold" if mark_of(row, measure) == "best" else "" for row in rows_of]
        cells = map(Text, (_number_text(measure, row) for row in rows_of), styles)
        table.add_row(Text(policy), *cells, style="dim" if policy in CONTROLS else None)
    return Group(Text(title, "italic"), table)


def _of_mean_or_task(
    rows: Sequence[SummaryRow], measure: Measure
) -> tuple[str, Sequence[SummaryRow]]:
    """Returns the rows of the mean over tasks; where the model cannot do the one task of the run,
    those of it."""
    of_mean = [row for row in rows if row.task == ALL_TASKS]
    tasks = {row.task for row in rows} - {ALL_TASKS}
    if len(tasks) == 1 and all(measure.value(row) is None for row in of_mean):
        return tasks.pop(), [row for row in rows if row.task != ALL_TASKS]
    # The mean of directives obeyed is over the tasks that have directives.
    counted = {task for row in of_mean for task in row.mean_of}
    having = dict.fromkeys(
        row.task for row in rows if row.task in counted and measure.value(row) is not None
    )
    return f"mean over {'tasks' if counted <= set(having) else ', '.join(having)}", of_mean


def _some(levels: Sequence[Level]) -> list[Level]:
    count = min(len(levels), MOST_COLUMNS)
    return [
        levels[round(number * (len(levels) - 1) / max(1, count - 1))] for number in range(count)
    ]


def _number_text(measure: Measure, row: SummaryRow | None) -> str:
    """Writes a number in five characters at most, so that ten columns fit."""
    if row is None:
        return ""
    value, text = measure.value(row), measure.text(measure.value(row))
    if value is not None and len(text) > 5:  # as -0.415 is
        text = f"{value * measure.factor:z.{max(0, measure.digits - len(text) + 5)}f}"
    return text[:-2] if len(text) > 4 and text.startswith("100") else text
