"""Looks at the answers of the full cache to questions from files before any policy runs.

A model that answers few of somebody's questions with the whole cache shows nothing of policies on
them, and a run of all policies takes minutes to say so.
"""

from collections.abc import Callable, Sequence
from functools import partial

from pandas import DataFrame

from datasets_gen import KNOWN_TASKS
from kvbench.cli.result import UnmasteredError
from kvbench.experiments.grid import Grid
from kvbench.prompts.mode import PREFIX_WAYS
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.studies.registry import SUITES
from kvbench.system.console import warn
from leaderboards.aggregate.leading_measures import QUESTIONS, find_lead
from leaderboards.aggregate.summary import PlannedCells, summarise
from leaderboards.terminal.result_table import Column, ResultTable
from policies import FULL

SHOWN = 8  # answers of a table that people look at
CONTROL_COLUMNS = ("task", "question", "golds", "output_text", "right")
PREFIX = "The answer is"


def full_cache_check(job: Job, grid: Grid, every_task: bool) -> Callable[[Store], None] | None:
    """Returns the check of the answers of the full cache before any policy runs; None where no task
    is of a file."""
    if all(task.name in KNOWN_TASKS for task, _ in grid.tasks):
        return None
    needs_right_answers = job.suite is None or SUITES[job.suite].needs_right_answers
    return partial(check_full_cache, grid=grid, goes_on=every_task or not needs_right_answers)


def check_full_cache(store: Store, grid: Grid, goes_on: bool) -> None:
    """Raises :class:`UnmasteredError` where the full cache is right too seldom on every task of a
    run, and all of them are questions from files; warns of such tasks where others can be measured,
    or where the run ``goes_on``."""
    records = store.frame()
    answers = records[records["policy"] == FULL]
    unmastered = _unmastered(answers, grid)
    if not unmastered:
        return
    reasons = "; ".join(f"{task}: {reason}" for task, reason in unmastered.items())
    if goes_on or len(unmastered) < len(grid.tasks):
        warn(f"{reasons}: what policies lose there says little")
        return
    fault = f"{store.identity.model} answers too few of these questions ({reasons})"
    advice = "no policy was run; see what it wrote, and the advice"
    raise UnmasteredError(f"{fault}: {advice}", control_table(answers), _remedies(store))


def _unmastered(answers: DataFrame, grid: Grid) -> dict[str, str]:
    """Returns why the model cannot do a task, by the tasks whose questions come from files.
    Directives and attacks are left alone: what a policy makes of them shows without a right
    answer."""
    from_files = {task.name for task, _ in grid.tasks} - KNOWN_TASKS.keys()
    reasons = {}
    # Nothing is planned, so that policies that are still to run do not count as missing.
    for row in summarise(answers, PlannedCells(grid.mode, {}, {})):
        if row.task in from_files and row.not_mastered and find_lead(row) is QUESTIONS:
            reasons[row.task] = row.not_mastered
    return reasons


def control_table(answers: DataFrame) -> ResultTable:
    """Lists the answers beside what would be right: people see a few, wrong ones first, and
    programs all."""
    texts = answers[list(CONTROL_COLUMNS)].assign(golds=answers["golds"].map(_texts))
    rows: list[tuple[object, ...]] = []
    for row in texts.to_numpy():
        rows.append(tuple(row))
    # False is sorted before True: wrong answers come first, in their own order.
    few = sorted(rows, key=lambda row: bool(row[-1]))[:SHOWN]
    columns = (
        Column("task", shown=False),
        Column("question", of_sentences=True),
        Column("golds", "right would be", " / ".join, of_sentences=True),
        Column("output_text", "the full cache wrote", of_sentences=True),
        Column("right", text=lambda is_right: "yes" if is_right else "no"),
    )
    caption = ""
    if len(few) < len(rows):
        caption = f"{len(few)} of {len(rows)} answers, wrong ones first"
    view = ResultTable("control", columns, few, caption=caption)
    return ResultTable("control", columns, rows, view=view)


def _texts(golds: Sequence[str]) -> list[str]:
    return [str(gold) for gold in golds]


def _remedies(store: Store) -> list[str]:
    """Says what may help a model that answers too few of somebody's questions."""
    job, model = store.run.job, store.identity.model
    data = job.tasks if job and job.tasks else "FILE"
    remedies = []
    if job:
        prefixes = [options.prefix for options in job.task_options.values()]
    else:
        prefixes = []
    if all(prefix is None or prefix in PREFIX_WAYS for prefix in prefixes):
        remedies.append(
            f'--tasks "FILE(prefix={PREFIX})" begins every answer for the model, as an answer_prefix in '
            "each line does: a small chat model is right about twice as often then (with another "
            "--name, as it is another run)"
        )
    doctor = f"python -m kvbench doctor --model {model} --tasks {data}"
    remedies.append(f"ask easier questions; {doctor} asks them alone")
    remedies.append(
        "--every-task runs the policies all the same; these answers are kept and not asked again"
    )
    return remedies
