"""Finds whether a model can do a task with the full cache, and at which level."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from scipy.stats import binomtest

from datasets_gen import Question, Task, at_level
from kvbench.checks.findings import Begin, silent
from kvbench.engine.decode.loop import OverflowingModelError, fault_of_model
from kvbench.experiments.build_grid import leave_out_tasks
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid, Setting
from kvbench.experiments.suites import dtype_of
from kvbench.models.load import LoadedModel, load_model
from kvbench.prompts.mode import Mode
from kvbench.run.local import Workers
from kvbench.store.run_file import Job
from kvbench.store.tables import CONTEXTS
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.lead import ABOVE_CHANCE, DIRECTIVES, lead_of
from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import PlannedCells, summarise
from leaderboards.terminal.result_table import Column, ResultTable
from policies import FULL, POLICIES, Policy

MODE: Mode = "agnostic"
TEXTS = {"context", "token_ends"}  # columns of a context that say nothing of an answer


def answers_of(
    model: LoadedModel,
    task: Task,
    policies: Sequence[Policy],
    contexts: int,
    seed: int,
    chosen: Callable[[Question], bool] = lambda question: True,
    held_out: bool = False,
    begin: Begin = silent,
    first: int = 0,
) -> pd.DataFrame:
    """Returns one row for each answer, with the columns of its context, question and record. All policies share the
    prefill of a context; ``chosen`` says which questions are asked, ``begin`` hears of each context, and ``first`` is
    the number of the first. Raises :class:`OverflowingModelError`."""
    workers, fault = Workers(model, contexts), fault_of_model(model)
    setting = Setting(policies, (), seed, MODE).shared_by(workers.count, model.device)

    def answers(replica: LoadedModel, index: int) -> list[dict[str, object]]:
        example = task.example(seed, index, held_out=held_out)
        example = replace(example, questions=tuple(filter(chosen, example.questions)))
        if not example.questions:
            return []
        collected = collect(replica, task, [example], setting)
        if any(record.reason == fault for record in collected.records):
            raise OverflowingModelError(fault)
        questions = {question.question_id: question.model_dump() for question in collected.questions}
        (context,) = (row.model_dump(exclude=TEXTS) for row in collected.tables[CONTEXTS.name])
        return [context | questions[record.question_id] | record.model_dump() for record in collected.records]

    rows: list[dict[str, object]] = []
    with workers.map(answers, range(first, first + contexts)) as results:
        for _ in range(contexts):
            begin(task.name)
            rows += next(results)
    return pd.DataFrame(rows)


LEVEL_CONTEXTS = 8  # at each level, at most
SEED = 7919  # of the contexts by which a level is chosen, apart from those that are measured then
LEAST = 60.0  # percent: what is asked at a level that is just mastered falls to the floor at the smallest loss
STEP = 4  # contexts that are asked at once, at most
NO_DOUBT = 12  # questions after which a level may be decided


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
    answers: tuple[str, ...] = ()  # what it wrote instead, a few

    @property
    def needed(self) -> float:
        """Returns what has to be reached, in percent."""
        return max(LEAST, (self.chance or 0.0) + ABOVE_CHANCE)

    @property
    def line(self) -> str:
        """Says in a line what was found."""
        level = f"level {self.place}" if self.top_level else "it has one level"
        reached = "" if self.reached is None else f", {self.measure.lower()} {self.reached:.0f}"
        return f"{self.task}: {f'not mastered ({self.reason})' if self.reason else f'{level}{reached}'}"

    @property
    def at_top(self) -> bool:
        return self.reason is None and self.level == self.top_level

    @property
    def place(self) -> str:
        """Writes the level beside the highest one; nothing for a task without levels."""
        return f"{self.level} of {self.top_level}" if self.top_level else ""


def enough(task: Task, contexts: int) -> int:
    """Returns how many contexts are asked: more than are given where a context has one question, as so few tell
    nothing."""
    asked = max(contexts, math.ceil(NO_DOUBT / task.questions_per_context))
    return asked if task.most is None else min(asked, task.most)


def highest_mastered(model: LoadedModel, task: Task, contexts: int, seed: int = 0, begin: Begin = silent) -> Mastery:
    """Asks a task at its highest level, and at lower ones until one is mastered; returns what was found at the last.
    The lowest comes second: what is beyond a model there is beyond it at all levels between."""
    found = mastery_at(model, task, task.top_level, contexts, seed, begin)
    if not found.reason or not task.top_level:
        return found
    easiest = mastery_at(model, task, 0, contexts, seed, begin)
    if easiest.reason:
        return easiest
    for level in range(task.top_level - 1, 0, -1):
        found = mastery_at(model, task, level, contexts, seed, begin)
        if not found.reason:
            return found
    return easiest


def mastery_at(
    model: LoadedModel, task: Task, level: int, contexts: int, seed: int = 0, begin: Begin = silent
) -> Mastery:
    """Asks a task at a level with the full cache, on contexts of its own, until there is no doubt whether it is
    mastered. A task that cannot be asked is not mastered."""
    asked = at_level(task, level) if task.top_level else task
    empty = Mastery(task.name, level, task.top_level, "", None, asked.chance, 0, None)
    rows: list[pd.DataFrame] = []
    contexts = enough(task, contexts)
    step = min(STEP, math.ceil(NO_DOUBT / task.questions_per_context))
    for first in range(0, contexts, step):
        try:
            count = min(step, contexts - first)
            rows.append(answers_of(model, asked, [POLICIES[FULL]], count, seed + SEED, begin=begin, first=first))
        except OverflowingModelError:
            raise
        except KVBenchError as error:
            return replace(empty, reason=f"it cannot be asked: {error}")
        answers = pd.concat(rows, ignore_index=True)
        found = _judged(empty, asked, answers)
        if _is_without_doubt(found):
            break
    return found


def _judged(empty: Mastery, task: Task, answers: pd.DataFrame) -> Mastery:
    chances = {task.name: task.chance} if task.chance > 0 else {}
    row: SummaryRow = summarise(answers, PlannedCells(MODE, {}, {}, chances))[0]
    lead = lead_of(row)
    measure = lead.measures[0]
    value, chance = measure.value(row), row.obeyed_by_silence if lead is DIRECTIVES else row.chance
    reached = None if value is None else value * measure.factor
    found = replace(empty, measure=measure.title, reached=reached, chance=chance, questions=row.n)
    reason = None
    if reached is None:
        reason = row.reason or "nothing is judged"
    elif reached < found.needed:
        reason = f"{measure.title.lower()} {reached:.0f} with the full cache, below {found.needed:.0f}"
    wrong = answers[~answers["right"].eq(True)] if reason else answers[:0]
    written = tuple(" ".join(str(text).split())[:80] for text in wrong["output_text"][:2])
    return replace(found, reason=reason, answers=written)


def _is_without_doubt(found: Mastery) -> bool:
    """Tells whether an exact 95 % interval lies on one side of what is needed."""
    if found.questions < NO_DOUBT or found.reached is None:
        return False
    right = round(found.reached / 100 * found.questions)
    interval = binomtest(right, found.questions).proportion_ci(0.95)
    return not 100 * interval.low < found.needed <= 100 * interval.high


def with_levels_found(job: Job, grid: Grid) -> Job:
    """Returns the job at the highest levels that its model masters, which are found here before it is run; raises
    :class:`KVBenchError` for a task that it masters at none."""
    if not any(task.top_level for task, _ in grid.tasks):
        raise KVBenchError("--difficulty auto: none of these tasks has levels: leave it out")
    console.print(f"loading {job.model}, to find the levels that it masters", soft_wrap=True)
    model = load_model(job.model, job.device, dtype_of(job.dtype, job.suite), job.device_map)
    grid = leave_out_tasks(grid, model.tokenizer, job)
    tasks = [task for task, _ in grid.tasks]
    found: list[Mastery] = []
    for task in tasks:
        console.print(f"asking {task.name}, from level {task.top_level} down", soft_wrap=True)
        found.append(highest_mastered(model, task, LEVEL_CONTEXTS, job.seed))
        console.print(found[-1].line, soft_wrap=True)
    lacking = [one.task for one in found if one.reason]
    if lacking:
        raise KVBenchError(
            f"--difficulty auto: {job.model} masters {', '.join(lacking)} at no level: leave them out of --tasks, or "
            "give --difficulty 0 to see what it answers"
        )
    levels = ",".join(f"{one.task}={one.level}" for one in found if one.top_level)
    return job.model_copy(update={"difficulty": levels or None})


def command_of(model: str, found: Sequence[Mastery]) -> str:
    """Writes the command that runs what is mastered at its levels."""
    mastered = [one for one in found if not one.reason]
    names = ",".join(one.task for one in mastered)
    levels = ",".join(f"{one.task}={one.level}" for one in mastered if one.level < one.top_level)
    difficulty = f" --difficulty {levels}" if levels else ""
    return f"python -m kvbench run --model {model} --tasks {names}{difficulty}"


def percent_text(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def mastery_table(masteries: Sequence[Mastery]) -> ResultTable:
    """Returns a line for each task."""
    columns = (
        Column("task"),
        Column("mastered", text=lambda mastered: "yes" if mastered else "no"),
        Column("level"),
        Column("measure", "by", cut=True),
        Column("reached", text=percent_text, right=True),
        Column("chance", text=percent_text, right=True),
        Column("questions", right=True),
        Column("reason", shown=False),
    )
    rows = [
        (m.task, m.reason is None, m.place, m.measure, m.reached, m.chance, m.questions, m.reason) for m in masteries
    ]
    return ResultTable("mastery", columns, rows, "With the full cache, percent")
