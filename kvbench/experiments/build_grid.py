"""Builds the grid of a job: any process builds the same one from the same options."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from datasets_gen import RULER, DatasetError, Task
from kvbench.engine.time_limit import TimeLimit
from kvbench.experiments import catalogue, options
from kvbench.experiments.data import check_judges, is_here, with_data
from kvbench.experiments.grid import Grid, Setting
from kvbench.experiments.suites import Suite, coverage_of, task_of_version
from kvbench.experiments.task_options import options_by_task
from kvbench.models.names import model_source
from kvbench.prompts.context_length import (
    Count,
    check_takes_length,
    count_by,
    lengthen,
    notes_on_length,
)
from kvbench.prompts.mode import AUTO_PREFIX, asked_of
from kvbench.store.groups import GROUPS
from kvbench.store.numerics import NUMERICS
from kvbench.store.observed import OBSERVED
from kvbench.store.run_file import Job, RunFile, TaskOptions
from kvbench.system.console import console, warn
from kvbench.system.errors import KVBenchError
from policies import FULL, KINDS, POLICIES, LazyModule, Level, Policy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

models = LazyModule("kvbench.models.load")  # likewise
# Which imports transformers, and a mistyped option waits for none.
prompts = LazyModule("kvbench.prompts.prompt")


def build_grid(job: Job, count: Count) -> Grid:
    """Builds the grid; :class:`KVBenchError` for options that make no sense. ``count``: of the
    model's tokens."""
    coverage = coverage_of(job.suite, job.tasks, job.policies, job.compress, job.mode)
    tasks = _tasks_of(job, coverage, count)
    check_judges(tasks, job.mode)
    catalogue.check_scope(tasks, job.mode, coverage.scope)
    counts = [
        (
            task,
            options.contexts_of(
                task, job.profile, job.limit, coverage.contexts_of(task, job.profile)
            ),
        )
        for task in tasks
    ]
    others: list[Policy] = []
    press = None
    if job.press is None:
        is_of_suite = bool(job.suite) and job.policies is None
        chosen = catalogue.choose_policies(coverage.policies, tasks, job.mode, True, is_of_suite)
        policies = catalogue.with_references(chosen, job.controls)
    else:
        press, others = catalogue.press_and_others(
            job.press, coverage.policies, tasks, job.mode, job.controls
        )
        # The press is last: ``figures`` finds it there in a run that is stored.
        policies = [POLICIES[FULL], *(policy for policy in (*others, press) if policy.name != FULL)]
        catalogue.check_names(policies)
    paper_size = coverage.size_at(job.profile)
    of_suite = paper_size.repeats if paper_size else coverage.repeats
    repeats = of_suite if job.repeats is None else job.repeats
    points = options.parse_points(
        job.levels or coverage.all_levels, policies, repeats, comparing=job.press is not None
    )
    if press is not None:
        catalogue.check_levels_meet(press, others, points)
    if not job.levels:
        policies = [
            _at_levels(policy, coverage.own_levels.get(policy.name, coverage.levels))
            for policy in policies
        ]
    names = (job.policies or catalogue.EVERYTHING).strip()
    policies = catalogue.at_some_level(policies, points, names == catalogue.EVERYTHING)
    time_limit = TimeLimit(options.check_above_zero("cell_seconds", job.cell_seconds))
    bound = options.kv_bytes(job.max_kv_gb)
    known = {table.name: table.name for table in (*OBSERVED, GROUPS)}
    observed = options.choose("table", job.observe, known) if job.observe is not None else []
    tables = tuple(dict.fromkeys((*coverage.tables, *observed)))
    numerics = options.numerics_options(job, repeats, NUMERICS.name in tables)
    setting = Setting(
        policies, points, job.seed, job.mode, bound, time_limit, coverage.scope, numerics, tables
    )
    return Grid(counts, setting, held_out=job.phrasings == "held-out")


def _at_levels(policy: Policy, texts: Mapping[str, str]) -> Policy:
    """Returns the policy, which runs at these levels alone where some are given, by kind as their
    options take them."""
    levels = tuple(
        Level(kind, value) for kind, text in texts.items() for value in KINDS[kind].parse(text)
    )
    return replace(policy, only=levels) if texts else policy


def _tasks_of(job: Job, coverage: Suite, count: Count) -> list[Task]:
    paper_size = coverage.size_at(job.profile)
    without = paper_size.without if paper_size else ()
    given = options_by_task(coverage.tasks, job.task_options)
    tasks = with_data(coverage.tasks, given, coverage.defence, without)
    tasks, places = options.at_levels(tasks, job.difficulty), places_within(tasks, job)
    if job.context_tokens is not None:
        check_takes_length(tasks)
    asked: list[Task] = []
    for task in tasks:
        of_task = given.get(task.name, TaskOptions())
        tokens, depth = job.context_tokens, of_task.depth
        longer = lengthen([task], tokens, depth, count, job.model, places)
        prefix = AUTO_PREFIX if of_task.prefix is None else of_task.prefix
        asked += asked_of(longer, job.model, prefix)
    most_tokens = paper_size.tokens if paper_size else None
    return options.with_answers_of(asked, job.max_new_tokens, most_tokens)


def places_within(tasks: Sequence[Task], job: Job) -> int | None:
    """Returns the places of the model where the length of a context may depend on them: of RULER's
    tasks, whose usual length is more than a small model has."""
    is_given = isinstance(job.context_tokens, int)
    return (
        None
        if is_given or not any(task.name in RULER for task in tasks)
        else models.places_of(job.model)
    )


def _is_here(given: TaskOptions) -> bool:
    return is_here(given.data) and is_here(given.essays)


def tasks_as_run(run: RunFile, model_is_here: bool) -> dict[str, Task]:
    """Returns the tasks of a run as they were asked, by name: those that can be made again here.
    What is missing has another version here, comes from a file that is not here, or is as long as
    so many tokens of a model that is not."""
    job, model = run.job, run.identity.model
    made: list[Task] = []
    if job and model_is_here and all(map(_is_here, job.task_options.values())):
        with suppress(
            KVBenchError, DatasetError
        ):  # of data that is not here, or that a stranger wrote into run.json
            coverage = coverage_of(job.suite, job.tasks, job.policies, job.compress, job.mode)
            made = _tasks_of(job, coverage, count_by(job.model))
    for planned in run.identity.tasks:  # those of their own length need no model
        if (native := task_of_version(planned.name, planned.version)) is not None:
            made += asked_of([native], model, "on" if planned.begins_answers else "off")
    versions = {planned.name: planned.version for planned in run.identity.tasks}
    return {
        task.name: task for task in reversed(made) if task.full_version == versions.get(task.name)
    }


def check_job(job: Job, names_model: bool = True) -> Grid:
    """Returns the grid of a job, before anything heavy is imported, and says what may surprise: of
    its files of questions, of levels, and of lengths, unless it names no model to have the places
    of."""
    model_source(job.model)
    grid = build_grid(job, count_by(job.model))
    for task, _ in grid.tasks:
        for note in task.notes:
            warn(f"{task.name}: {note}")
    coverage = coverage_of(job.suite, job.tasks, job.policies, job.compress, job.mode)
    registered = coverage.tasks
    notes = options.notes_on_levels(registered, job.difficulty)
    if job.suite and job.policies is None and coverage.policies:
        notes += catalogue.left_out(coverage.policies, [task for task, _ in grid.tasks], job.mode)
    if names_model:
        notes += notes_on_length(
            registered, job.context_tokens, places_within(registered, job), job.model
        )
    for note in notes:
        console.print(note, soft_wrap=True, markup=False)
    return grid


def leave_out_tasks(grid: Grid, tokenizer: "PreTrainedTokenizerBase", job: Job) -> Grid:
    """Leaves out the tasks that the chat template cannot ask, and prints the reasons; raises
    :class:`KVBenchError` with the reason if tasks were named, or where none is left."""
    reasons: Mapping[str, str] = prompts.without_system_turn(
        tokenizer, [task for task, _ in grid.tasks]
    )
    left = [(task, contexts) for task, contexts in grid.tasks if task.name not in reasons]
    if reasons and (job.tasks is not None or not left):
        raise KVBenchError(f"{next(iter(reasons.values()))}: leave it out of --tasks")
    for reason in reasons.values():
        console.print(f"left out: {reason}", soft_wrap=True, markup=False)
    return replace(grid, tasks=left)


def leave_out(grid: Grid, missing: Mapping[str, str], job: Job) -> Grid:
    """Leaves out the policies that cannot run on the model (:func:`without`)."""
    left = catalogue.without(grid.setting.policies, missing, job.policies)
    return replace(grid, setting=replace(grid.setting, policies=left))
