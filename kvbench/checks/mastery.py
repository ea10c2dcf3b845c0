"""Finds which tasks a model masters with the full cache, and at which level."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from scipy.stats import binomtest

from datasets_gen import Question, Task, at_level
from kvbench.checks.findings import Begin, percent_column, silent
from kvbench.engine.decode.loop import OverflowingModelError, fault_of_model
from kvbench.execution.local import Workers, model_of
from kvbench.experiments.build_grid import leave_out_tasks
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode
from kvbench.store.run_file import Job
from kvbench.store.tables import CONTEXTS
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.leading_measures import ABOVE_CHANCE, DIRECTIVES, find_lead
from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import PlannedCells, summarise
from leaderboards.terminal.result_table import Column, ResultTable
from policies import FULL, POLICIES, Policy

MODE: Mode = "agnostic"
TEXTS = {"context", "token_ends"}  # columns of a context that say nothing of an answer
LEVEL_CONTEXTS = 8  # at each level, at most
SEED = 7919  # of the contexts by which a level is chosen, apart from those that are measured then
# Percent: what is asked at a level that is just mastered falls to the floor at the smallest loss.
LEAST = 60.0
STEP = 4  # contexts that are asked at once, at most
NO_DOUBT = 12  # questions after which a level may be decided


def collect_answers(
    model: LoadedModel,
    task: Task,
    policies: Sequence[Policy],
    contexts: int,
    seed: int,
    chosen: Callable[[Question], bool] = lambda question: True,
    begin: Begin = silent,
    first: int = 0,
    held_out: bool = False,
) -> pd.DataFrame:
    """Returns a row for each answer with its context and question. Raises
    :class:`OverflowingModelError`."""
    workers = Workers(model, contexts)
    fault = fault_of_model(model)
    grid = Grid([(task, contexts)], policies, (), seed, MODE, held_out)
    grid = grid.shared_by(workers.count, model.device)

    def answers(replica: LoadedModel, index: int) -> list[dict[str, object]]:
        example = task.example(seed, index, held_out=held_out)
        example = replace(example, questions=tuple(filter(chosen, example.questions)))
        if not example.questions:
            # Contexts of which no question is chosen still count as a step of the progress.
            return []
        collected = collect(replica, task, [example], grid)
        if any(record.reason == fault for record in collected.records):
            raise OverflowingModelError(fault)
        questions: dict[str, dict[str, object]] = {}
        for question in collected.questions:
            questions[question.question_id] = question.model_dump()
        (stored_context,) = collected.tables[CONTEXTS.name]
        context = stored_context.model_dump(exclude=TEXTS)
        rows: list[dict[str, object]] = []
        for record in collected.records:
            rows.append(context | questions[record.question_id] | record.model_dump())
        return rows

    rows_of_all: list[dict[str, object]] = []
    with workers.map(answers, range(first, first + contexts)) as results:
        for _ in range(contexts):
            begin(task.name)
            rows_of_all += next(results)
    return pd.DataFrame(rows_of_all)


@dataclass(frozen=True)
class Mastery:
    """Says whether a model can do a task with the full cache, and at which level."""

    task: str
    level: int  # the highest that it masters, or the lowest
    top_level: int
    measure: str
    reached: float | None  # in percent
    chance: float | None  # what a guess reaches, or silence where directives are obeyed, in percent
    questions: int
    reason: str | None  # why not; None if it can

    @property
    def needed(self) -> float:
        """Returns what has to be reached, in percent."""
        return max(LEAST, (self.chance or 0.0) + ABOVE_CHANCE)

    @property
    def at_top(self) -> bool:
        return self.reason is None and self.level == self.top_level

    @property
    def place(self) -> str:
        """Writes the level beside the highest one; nothing for a task without levels."""
        if not self.top_level:
            return ""
        return f"{self.level} of {self.top_level}"

    @property
    def is_without_doubt(self) -> bool:
        """Tells whether an exact 95 % interval lies on one side of what is needed."""
        if self.questions < NO_DOUBT or self.reached is None:
            return False
        # The exact interval wants a number of right answers, and the mean is all that was stored.
        right = round(self.reached / 100 * self.questions)
        interval = binomtest(right, self.questions).proportion_ci(0.95)
        is_inside = 100 * interval.low < self.needed <= 100 * interval.high
        return not is_inside


def enough(task: Task, contexts: int) -> int:
    """Returns how many contexts are asked: more than are given where a context has one question."""
    wanted = max(contexts, math.ceil(NO_DOUBT / task.questions_per_context))
    if task.most is None:
        return wanted
    return min(wanted, task.most)


def highest_mastered(
    model: LoadedModel, task: Task, contexts: int, seed: int = 0, begin: Begin = silent
) -> Mastery:
    """Asks a task at its highest level, and at lower ones until one is mastered; returns what was
    found at the last. The lowest comes second: what is beyond a model there is beyond it at all
    levels between."""
    mastery = mastery_at(model, task, task.top_level, contexts, seed, begin)
    if not mastery.reason or not task.top_level:
        return mastery
    easiest = mastery_at(model, task, 0, contexts, seed, begin)
    if easiest.reason:
        return easiest
    for level in range(task.top_level - 1, 0, -1):
        mastery = mastery_at(model, task, level, contexts, seed, begin)
        if not mastery.reason:
            return mastery
    return easiest


def mastery_at(
    model: LoadedModel, task: Task, level: int, contexts: int, seed: int = 0, begin: Begin = silent
) -> Mastery:
    """Asks a task at a level with the full cache until there is no doubt; what cannot be asked is
    not mastered."""
    leveled = task
    if task.top_level:
        leveled = at_level(task, level)
    mastery = Mastery(task.name, level, task.top_level, "", None, leveled.chance, 0, None)
    answers: list[pd.DataFrame] = []
    contexts = enough(task, contexts)
    step = min(STEP, math.ceil(NO_DOUBT / task.questions_per_context))
    for first in range(0, contexts, step):
        # A portion at a time, as a level may be decided before all contexts have been asked.
        count = min(step, contexts - first)
        try:
            more = collect_answers(
                model, leveled, [POLICIES[FULL]], count, seed + SEED, begin=begin, first=first
            )
        except OverflowingModelError:
            raise
        except KVBenchError as error:
            return replace(mastery, reason=f"it cannot be asked: {error}")
        answers.append(more)
        mastery = _judge(mastery, leveled.chance, pd.concat(answers, ignore_index=True))
        if mastery.is_without_doubt:
            break
    return mastery


def _judge(mastery: Mastery, chance: float, answers: pd.DataFrame) -> Mastery:
    """Fills in what a model reached and whether that is enough; ``chance``: of the task, 0 where
    there is nothing to guess."""
    chances: dict[str, float] = {}
    if chance > 0:
        chances[mastery.task] = chance
    # Nothing is planned, so that nothing counts as missing: what was asked is judged.
    row: SummaryRow = summarise(answers, PlannedCells(MODE, {}, {}, chances))[0]
    lead = find_lead(row)
    measure = lead.measures[0]
    guessed = row.chance
    if lead is DIRECTIVES:
        guessed = row.obeyed_by_silence
    mastery = replace(mastery, measure=measure.title, chance=guessed, questions=row.n)
    value = measure.value(row)
    if value is None:
        return replace(mastery, reached=None, reason=row.reason or "nothing is judged")
    reached = value * measure.factor
    reason = None
    if reached < mastery.needed:
        measured = f"{measure.title.lower()} {reached:.0f} with the full cache"
        reason = f"{measured}, below {mastery.needed:.0f}"
    return replace(mastery, reached=reached, reason=reason)


def find_levels(job: Job, grid: Grid) -> tuple[str, LoadedModel]:
    """Finds the highest levels that the model of a job masters, and returns them as
    ``--difficulty`` takes them, with the model, which is loaded for that. Raises
    :class:`KVBenchError` for a task without such a level."""
    # Of the others nothing is to be chosen.
    with_levels = [task.name for task, _ in grid.tasks if task.top_level]
    if not with_levels:
        raise KVBenchError("--difficulty auto: none of these tasks has levels: leave it out")
    names = ", ".join(with_levels)
    model = model_of(
        job,
        f", to find the levels of {names} that it masters, the highest first, by up to "
        f"{LEVEL_CONTEXTS} contexts each: it may take as long as the run; doctor tells them once",
    )
    masteries: list[Mastery] = []
    for task, _ in leave_out_tasks(grid, model.tokenizer, job).tasks:
        if not task.top_level:
            continue
        mastery = highest_mastered(model, task, LEVEL_CONTEXTS, job.seed)
        masteries.append(mastery)
        text = f"level {mastery.place}"
        if mastery.reason:
            text = f"not mastered ({mastery.reason})"
        elif mastery.reached is not None:
            text += f", {mastery.measure.lower()} {mastery.reached:.0f}"
        console.print(f"{task.name}: {text}", soft_wrap=True)
    if beyond := [mastery.task for mastery in masteries if mastery.reason]:
        raise KVBenchError(
            f"--difficulty auto: {job.model} masters {', '.join(beyond)} at no level: leave them "
            f"out of --tasks, or give --difficulty 0 to see what it answers"
        )
    levels = ",".join(f"{mastery.task}={mastery.level}" for mastery in masteries)
    return levels, model


def write_command(model: str, masteries: Sequence[Mastery]) -> str:
    """Writes the command that runs what is mastered at its levels."""
    names: list[str] = []
    levels: list[str] = []
    for mastery in masteries:
        if mastery.reason:
            continue
        names.append(mastery.task)
        if mastery.level < mastery.top_level:
            levels.append(f"{mastery.task}={mastery.level}")
    command = f"python -m kvbench run --model {model} --tasks {','.join(names)}"
    if levels:
        command += f" --difficulty {','.join(levels)}"
    return command


def write_call(masteries: Sequence[Mastery]) -> str:
    """Writes the call that runs what a model in memory masters, at its levels."""
    names: list[str] = []
    levels: list[str] = []
    for mastery in masteries:
        if not mastery.reason:
            names.append(mastery.task)
            levels.append(f"{mastery.task}={mastery.level}")
    return f"kvbench.run(model, tokenizer, tasks={names}, difficulty={','.join(levels)!r})"


def mastery_table(masteries: Sequence[Mastery]) -> ResultTable:
    """Returns a line for each task, at the level of which its mastery tells."""
    columns = (
        Column("task"),
        Column("mastered", text=lambda is_mastered: "yes" if is_mastered else "no"),
        Column("level"),
        Column("measure", "by", cut=True),
        percent_column("reached"),
        percent_column("chance"),
        Column("questions", right=True),
        Column("reason", shown=False),
    )
    rows: list[tuple[object, ...]] = []
    for mastery in masteries:
        measured = (mastery.measure, mastery.reached, mastery.chance, mastery.questions)
        is_mastered = mastery.reason is None
        rows.append((mastery.task, is_mastered, mastery.place, *measured, mastery.reason))
    return ResultTable("mastery", columns, rows, "With the full cache, percent")
