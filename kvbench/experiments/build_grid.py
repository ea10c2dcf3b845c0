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
from kvbench.experiments.suites import find_coverage, task_of_version
from kvbench.experiments.task_options import options_by_task
from kvbench.models.names import model_source
from kvbench.prompts.context_length import (
    Count,
    check_takes_length,
    count_by,
    lengthen,
    notes_on_length,
)
from kvbench.prompts.mode import phrase_tasks
from kvbench.store.run_file import Job, RunFile, TaskOptions
from kvbench.studies.declaration import Suite
from kvbench.studies.registry import NUMERICS, OBSERVABLE
from kvbench.system.console import console, warn
from kvbench.system.errors import KVBenchError
from policies import FULL, POLICIES, LazyModule, Point, Policy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

models = LazyModule("kvbench.models.load")  # likewise
# Which imports transformers, and a mistyped option waits for none.
prompts = LazyModule("kvbench.prompts.prompt")


def build_grid(job: Job, count: Count) -> Grid:
    """Builds the grid; :class:`KVBenchError` for options that make no sense. ``count``: of the
    model's tokens."""
    coverage = find_coverage(job.suite, job.tasks, job.policies, job.compress, job.mode)
    tasks = _prepare_tasks(job, coverage, count)
    check_judges(tasks, job.mode)
    catalogue.check_scope(tasks, job.mode, coverage.scope)
    options_of_tasks = options_by_task(coverage.tasks, job.task_options)
    counts: list[tuple[Task, int]] = []
    for task in tasks:
        of_suite = coverage.count_contexts(task, job.profile)
        of_task = options_of_tasks.get(task.name, TaskOptions()).limit
        contexts = options.count_contexts(task, job.profile, job.limit, of_suite, of_task)
        counts.append((task, contexts))
    repeats = _repeats(job, coverage)
    policies, points = _policies_and_points(job, coverage, tasks, repeats)
    time_limit = TimeLimit(options.check_above_zero("cell_seconds", job.cell_seconds))
    bound = options.kv_bytes(job.max_kv_gb)
    observed: list[str] = []
    if job.observe is not None:
        observable = {table: table for table in OBSERVABLE}
        observed = options.choose("table", job.observe, observable)
    tables = tuple(dict.fromkeys((*coverage.tables, *observed)))
    numerics = options.numerics_options(job, repeats, NUMERICS in tables)
    setting = Setting(
        policies, points, job.seed, job.mode, bound, time_limit, coverage.scope, numerics, tables
    )
    return Grid(counts, setting, held_out=job.phrasings == "held-out")


def _repeats(job: Job, coverage: Suite) -> int:
    """Returns how often random policies draw: as the option says, or the paper, or the suite."""
    if job.repeats is not None:
        return job.repeats
    paper_size = coverage.size_at(job.profile)
    if paper_size:
        return paper_size.repeats
    return coverage.repeats


def _policies_and_points(
    job: Job, coverage: Suite, tasks: Sequence[Task], repeats: int
) -> tuple[list[Policy], tuple[Point, ...]]:
    """Chooses the policies of a job with their references, or a press with those that it is
    compared with, and the levels and draws of all."""
    levels = job.levels or coverage.all_levels
    if job.press is None:
        is_of_suite = bool(job.suite) and job.policies is None
        chosen = catalogue.choose_policies(coverage.policies, tasks, job.mode, True, is_of_suite)
        policies = catalogue.with_references(chosen, job.controls)
        points = options.parse_points(levels, policies, repeats)
    else:
        press, others = catalogue.press_and_others(
            job.press, coverage.policies, tasks, job.mode, job.controls
        )
        # The press is last: ``figures`` finds it there in a run that is stored.
        policies = [POLICIES[FULL]]
        for policy in (*others, press):
            if policy.name != FULL:
                policies.append(policy)
        catalogue.check_names(policies)
        points = options.parse_points(levels, policies, repeats, comparing=True)
        catalogue.check_levels_meet(press, others, points)
    if not job.levels:
        at_levels: list[Policy] = []
        for policy in policies:
            texts = coverage.own_levels.get(policy.name, coverage.levels)
            at_levels.append(_at_levels(policy, texts))
        policies = at_levels
    names = (job.policies or catalogue.EVERYTHING).strip()
    return catalogue.at_some_level(policies, points, names == catalogue.EVERYTHING), points


def _at_levels(policy: Policy, texts: Mapping[str, str]) -> Policy:
    """Returns the policy, which runs at these levels alone where some are given, by kind as their
    options take them."""
    if not texts:
        return policy
    only = tuple(options.parse_levels(texts))
    return replace(policy, levels=replace(policy.levels, only=only))


def _prepare_tasks(job: Job, coverage: Suite, count: Count) -> list[Task]:
    """Makes the tasks of a job: with their rows, at their levels, as long as they are asked for."""
    without: tuple[str, ...] = ()
    answer_tokens = None  # at most
    if paper_size := coverage.size_at(job.profile):
        without = paper_size.without
        answer_tokens = paper_size.tokens
    options_of_tasks = options_by_task(coverage.tasks, job.task_options)
    tasks = with_data(coverage.tasks, options_of_tasks, coverage.defence, without)
    tasks = options.at_levels(tasks, job.difficulty)
    places = places_within(tasks, job)
    if job.context_tokens is not None:
        check_takes_length(tasks)
    phrased: list[Task] = []
    for task in tasks:
        task_options = options_of_tasks.get(task.name, TaskOptions())
        depth = task_options.depth
        longer = lengthen([task], job.context_tokens, depth, count, job.model, places)
        phrased += phrase_tasks(longer, job.model, task_options.prefix)
    return options.limit_answers(phrased, job.max_new_tokens, answer_tokens)


def places_within(tasks: Sequence[Task], job: Job) -> int | None:
    """Returns the places of the model where the length of a context may depend on them: of RULER's
    tasks, whose usual length is more than a small model has."""
    is_given = isinstance(job.context_tokens, int)
    if is_given or not any(task.name in RULER for task in tasks):
        return None
    places: int | None = models.count_places(job.model)
    return places


def _is_here(task_options: TaskOptions) -> bool:
    """Tells whether the files that stand behind a task are on this machine."""
    return is_here(task_options.data) and is_here(task_options.essays)


def tasks_as_run(run: RunFile, model_is_here: bool) -> dict[str, Task]:
    """Returns the tasks of a run as they were asked, by name: those that can be made again here.
    What is missing has another version here, comes from a file that is not here, or is as long as
    so many tokens of a model that is not."""
    job, model = run.job, run.identity.model
    tasks: list[Task] = []
    if job and model_is_here and all(map(_is_here, job.task_options.values())):
        # Of data that is not here, or that a stranger wrote into run.json.
        with suppress(KVBenchError, DatasetError):
            coverage = find_coverage(job.suite, job.tasks, job.policies, job.compress, job.mode)
            tasks = _prepare_tasks(job, coverage, count_by(job.model))
    versions: dict[str, str] = {}
    for planned in run.identity.tasks:
        versions[planned.name] = planned.version
        # Tasks of their own length need no model.
        if (native := task_of_version(planned.name, planned.version)) is not None:
            answer_prefix = "on" if planned.begins_answers else "off"
            tasks += phrase_tasks([native], model, answer_prefix)
    by_name: dict[str, Task] = {}
    for task in reversed(tasks):  # the tasks of the job come before those of their own length
        if task.full_version == versions.get(task.name):
            by_name[task.name] = task
    return by_name


def check_job(job: Job, names_model: bool = True) -> Grid:
    """Returns the grid of a job, before anything heavy is imported, and says what may surprise: of
    its files of questions, of levels, and of lengths, unless it names no model to have the places
    of."""
    model_source(job.model)
    grid = build_grid(job, count_by(job.model))
    tasks = [task for task, _ in grid.tasks]
    for task in tasks:
        for note in task.notes:
            warn(f"{task.name}: {note}")
    coverage = find_coverage(job.suite, job.tasks, job.policies, job.compress, job.mode)
    registered = coverage.tasks
    notes = options.notes_on_levels(registered, job.difficulty)
    if job.suite and job.policies is None and coverage.policies:
        notes += catalogue.left_out(coverage.policies, tasks, job.mode)
    if names_model:
        places = places_within(registered, job)
        notes += notes_on_length(registered, job.context_tokens, places, job.model)
    for note in notes:
        console.print(note, soft_wrap=True, markup=False)
    return grid


def leave_out_tasks(grid: Grid, tokenizer: "PreTrainedTokenizerBase", job: Job) -> Grid:
    """Leaves out the tasks that the chat template cannot ask, and prints the reasons; raises
    :class:`KVBenchError` with the reason if tasks were named, or where none is left."""
    tasks = [task for task, _ in grid.tasks]
    reasons: Mapping[str, str] = prompts.without_system_turn(tokenizer, tasks)
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
