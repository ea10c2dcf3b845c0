"""Makes the sections of a page: one task, or the mean over tasks, of some results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.lead import CANNOT, QUESTIONS, TEXT, first_shown, lead_of, leading_first
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow, is_told
from leaderboards.figures.gallery import Gallery, gallery
from leaderboards.metrics import TABLES
from leaderboards.pages.results import Results, distinct, examples_page, labels_of
from leaderboards.pages.tables import Table, every_measure, measure_table
from leaderboards.pages.uses import with_use
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, line_styles, with_adapted
from leaderboards.statistics.text import count_text


@dataclass(frozen=True)
class TaskSection:
    """Holds the figures and the tables of one task, and every measure."""

    identifier: str
    title: str
    note: str
    styles: Mapping[str, LineStyle]  # by policy, methods first
    gallery: Gallery
    tables: tuple[Table, ...]
    listing: Listing | None  # every measure; the mean over tasks has none, as its tasks have pages with theirs


def sections_of(results: Sequence[Results], task: str) -> list[TaskSection]:
    """Makes a section for each of the results that show the task; lines and heat are the same on all pages of a
    site."""
    styles = line_styles([row for one in results for row in one.rows])
    highest = {
        measure.name: max(
            (value for one in results for row in one.rows if (value := measure.value(row)) is not None), default=0.0
        )
        for measure in TABLES
    }
    labels = labels_of(results)
    return [
        _section(one, number, task, title_of(task, label), styles, highest)
        for number, (one, label) in enumerate(zip(results, labels, strict=True), start=1)
        if task in one.shown
    ]


def title_of(task: str, label: str) -> str:
    name = "All tasks" if task == ALL_TASKS else with_use(task)
    return f"{name}, {label}" if label else name


def largest_of(results: Results, task: str) -> SummaryRow:
    """Returns the row of a task with the most questions."""
    return max((row for row in results.rows if row.task == task), key=lambda row: row.n)


def note_of(results: Results, task: str) -> str:
    """Says how many questions and contexts a task has, and what a reader has to know of it."""
    most = largest_of(results, task)
    lead = QUESTIONS if task == ALL_TASKS else lead_of(most)
    counted = count_text(most.n, lead.unit)
    sentences = [f"Each cell has {counted}" + (f" about {contexts_text(results, task)}" if lead is not TEXT else "")]
    if most.not_mastered:
        where = "" if task == ALL_TASKS else f" ({most.not_mastered.removeprefix(f'{CANNOT}: ')})"
        which = f"masters none of the {len(results.tasks)} tasks" if task == ALL_TASKS else "does not master this task"
        sentences.insert(
            0,
            f"The model {which} with the full cache{where}, so that its scores say nothing of policies; how "
            "much less likely the right answer becomes does",
        )
    elif task == ALL_TASKS:
        left_out = [one for one in results.tasks if one not in results.mastered]
        over = f"{len(results.mastered)} of {len(results.tasks)} tasks" if left_out else f"{len(results.tasks)} tasks"
        why = f": without {', '.join(left_out)}, which the model cannot do with the full cache" if left_out else ""
        sentences.insert(0, f"Unweighted mean over {over}{why}")
    leveled = {one: results.levels[one] for one in results.tasks if one in results.levels}
    if task in leveled:
        sentences.append(f"It is asked at level {leveled[task]} of difficulty")
    elif task == ALL_TASKS and leveled:
        levels = ", ".join(f"{one} at {level}" for one, level in leveled.items())
        sentences.append(f"Levels of difficulty below the highest: {levels}")
    if most.chance is not None:
        sentences.append(
            f"A guess without the text has {most.chance:.1f} % {'of the next tokens ' * (lead is TEXT)}right"
        )
    if most.right_by_silence is not None:
        sentences.append(f"“I don’t know” to every question has {most.right_by_silence:.1f} % right")
    if most.obeyed_by_silence is not None:
        sentences.append(f"It obeys {most.obeyed_by_silence:.0f} % of the directives")
    if most.few_contexts:
        least = f"as few as {most.fewest_contexts} contexts of a task" if task == ALL_TASKS else "so few contexts"
        sentences.append(f"With {least}, intervals are too narrow and verdicts too sure: their cells are hatched")
    return "".join(f"{sentence}. " for sentence in sentences).strip()


def contexts_text(results: Results, task: str) -> str:
    """Writes how many contexts there are, over several tasks those of each; of attacks there may be fewer."""
    whole = count_text(largest_of(results, task).contexts, "context")
    if task != ALL_TASKS:
        return f"{whole}{_attacked(results, task)}"
    by_count: dict[tuple[int, str], list[str]] = {}
    for one in results.mastered or results.tasks:
        by_count.setdefault((largest_of(results, one).contexts, _attacked(results, one)), []).append(one)
    parts = [
        f"{count} {'each ' * (len(tasks) > 1)}of {', '.join(tasks)}{attacked}"
        for (count, attacked), tasks in by_count.items()
    ]
    return f"{whole}: {'; '.join(parts)}"


def _attacked(results: Results, task: str) -> str:
    row = largest_of(results, task)
    fewer = row.fewest_contexts < row.contexts
    return f" ({row.fewest_contexts} of them with attacks under a defence)" if fewer else ""


def _section(
    results: Results,
    number: int,
    task: str,
    title: str,
    styles: Mapping[str, LineStyle],
    highest: Mapping[str, float],
) -> TaskSection:
    rows_of_task = [row for row in results.rows if row.task == task]
    board = results.boards.get((results.mode, task))
    adapted = {policy for policy in styles if board is not None and board.is_adapted(policy)}
    styles = with_adapted(styles, adapted)
    shown = [styles[policy] for policy in distinct(row.policy for row in rows_of_task)]
    examples = "" if task == ALL_TASKS else examples_page(task, number)
    identifier = f"section-{number}"
    leading = first_shown(task, rows_of_task)[:1]
    return TaskSection(
        identifier=identifier,
        title=title,
        note=note_of(results, task),
        styles={style.policy: style for style in sorted(shown, key=lambda style: style.control)},
        gallery=gallery(results.rows, task, results.mode, styles, identifier),
        tables=tuple(
            measure_table(rows_of_task, measure, highest[measure.name], examples if measure in leading else "")
            for measure in leading_first(TABLES, task, rows_of_task)
            if measure in leading or is_told(measure, rows_of_task)
        ),
        listing=None if task == ALL_TASKS else every_measure(rows_of_task, title),
    )
