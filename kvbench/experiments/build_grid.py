"""Builds the grid of a job: any process builds the same one from the same options."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from datasets_gen import RULER, DatasetError, Task, with_questions
from kvbench.engine.time_limit import TimeLimit
from kvbench.experiments import catalogue, options
from kvbench.experiments.data import check_judges, is_here, with_data
from kvbench.experiments.grid import Grid
from kvbench.experiments.suites import find_suite, find_tasks, task_of_version
from kvbench.experiments.task_options import options_by_task
from kvbench.handed.scorers import installed_scorers
from kvbench.handed.tasks import name_code
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
from kvbench.studies.registry import NUMERICS, OBSERVABLE, SCORES
from kvbench.system.console import console, warn
from kvbench.system.errors import KVBenchError
from policies import FULL, POLICIES, LazyModule, Point, Policy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

models = LazyModule("kvbench.models.opening")  # likewise
# Which imports transformers, and a mistyped option waits for none.
prompts = LazyModule("kvbench.prompts.prompt")


def build_grid(job: Job, count: Count) -> Grid:
    """Builds the grid of a job. Raises :class:`KVBenchError` for options that make no sense.
    ``count``: of the model's tokens."""
    suite = find_suite(job.suite)
    scope = job.compress or suite.scope
    tasks = _prepare_tasks(job, count)
    check_judges(tasks, job.mode)
    catalogue.check_scope(tasks, job.mode, scope)
    registered = find_tasks(job.suite, job.tasks, job.compress)
    options_of_tasks = options_by_task(registered, job.task_options)
    counts: list[tuple[Task, int]] = []
    for task in tasks:
        of_suite = suite.count_contexts(task, job.profile)
        of_task = options_of_tasks.get(task.name, TaskOptions()).limit
        contexts = options.count_contexts(task, job.profile, job.limit, of_suite, of_task)
        counts.append((task, contexts))
    repeats = _repeats(job, suite)
    policies, points = _policies_and_points(job, tasks, repeats)
    time_limit = TimeLimit(options.check_above_zero("cell_seconds", job.cell_seconds))
    bound = options.kv_bytes(job.max_kv_gb)
    observed: list[str] = []
    if job.observe is not None:
        observable = {table: table for table in OBSERVABLE}
        observed = options.choose("table", job.observe, observable)
    if any(task.scorers for task in tasks):
        observed.append(SCORES)
    elif SCORES in observed and not installed_scorers():
        raise KVBenchError("--observe scores: no task, and no installed package, brings a scorer")
    tables = tuple(dict.fromkeys((*suite.tables, *observed)))
    return Grid(
        counts,
        policies,
        points,
        seed=job.seed,
        mode=job.mode,
        held_out=job.phrasings == "held-out",
        max_kv_bytes=bound,
        time_limit=time_limit,
        scope=scope,
        numerics=options.numerics_options(job, repeats, NUMERICS in tables),
        tables=tables,
    )


def at_found_levels(job: Job, levels: str) -> tuple[Job, Grid]:
    """Returns a job of ``--difficulty auto`` at the levels that were found, with its grid."""
    job = job.model_copy(update={"difficulty": levels})
    return job, build_grid(job, count_by(job.model))


def _repeats(job: Job, suite: Suite) -> int:
    """Returns how often random policies draw: as the option says, or the paper, or the suite."""
    if job.repeats is not None:
        return job.repeats
    paper_size = suite.size_at(job.profile)
    if paper_size:
        return paper_size.repeats
    return suite.repeats


def _policies_and_points(
    job: Job, tasks: Sequence[Task], repeats: int
) -> tuple[list[Policy], tuple[Point, ...]]:
    """Chooses the policies of a job with their references, or a press with those that it is
    compared with, and the levels and draws of all."""
    suite = find_suite(job.suite)
    names = _policy_names(job)
    # Policies that are named run at the levels of all, also those that the suite has at their own.
    if job.policies is not None:
        suite = replace(suite, own_levels={})
    levels = job.levels or suite.all_levels
    if job.press is None:
        is_of_suite = bool(job.suite) and job.policies is None
        chosen = catalogue.choose_policies(names, tasks, job.mode, True, is_of_suite)
        policies = catalogue.with_references(chosen, job.controls)
        points = options.parse_points(levels, policies, repeats)
    else:
        press, others = catalogue.press_and_others(job.press, names, tasks, job.mode, job.controls)
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
            texts = suite.own_levels.get(policy.name, suite.levels)
            at_levels.append(_at_levels(policy, texts))
        policies = at_levels
    is_everything = (job.policies or catalogue.EVERYTHING).strip() == catalogue.EVERYTHING
    return catalogue.at_some_level(policies, points, is_everything), points


def _policy_names(job: Job) -> str | None:
    """Returns the policies that a job names, or else those of its suite."""
    if job.policies is not None:
        return job.policies
    return find_suite(job.suite).policies_in(job.mode)


def _at_levels(policy: Policy, texts: Mapping[str, str]) -> Policy:
    """Returns the policy, which runs at these levels alone where some are given, by kind as their
    options take them."""
    if not texts:
        return policy
    only = tuple(options.parse_levels(texts))
    return replace(policy, levels=replace(policy.levels, only=only))


def _prepare_tasks(job: Job, count: Count) -> list[Task]:
    """Makes the tasks of a job: with their rows, at their levels, as long as they are asked for."""
    suite = find_suite(job.suite)
    without: tuple[str, ...] = ()
    answer_tokens = None  # at most
    if paper_size := suite.size_at(job.profile):
        without = paper_size.without
        answer_tokens = paper_size.tokens
    registered = find_tasks(job.suite, job.tasks, job.compress)
    options_of_tasks = options_by_task(registered, job.task_options)
    # Rows before levels, and levels before lengths: each works on what the former has made.
    tasks = with_data(registered, options_of_tasks, suite.defence, without)
    tasks = options.at_levels(tasks, job.difficulty)
    places = places_within(tasks, job)
    if job.context_tokens is not None:
        check_takes_length(tasks)
    phrased: list[Task] = []
    for task in tasks:
        task_options = options_of_tasks.get(task.name, TaskOptions())
        depth = task_options.depth
        if task_options.questions is not None:
            task = with_questions(task, task_options.questions)
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
    # Nobody asked for code that a stranger's run names: it is not run.
    names_code = bool(job and name_code((job.tasks or "").split(",")))
    if job and model_is_here and not names_code and all(map(_is_here, job.task_options.values())):
        # Of data that is not here, or that a stranger wrote into run.json.
        with suppress(KVBenchError, DatasetError):
            tasks = _prepare_tasks(job, count_by(job.model))
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
    # For its errors: a mistyped name is refused before anything heavy is imported.
    model_source(job.model)
    grid = build_grid(job, count_by(job.model))
    tasks = [task for task, _ in grid.tasks]
    for task in tasks:
        for note in task.notes:
            warn(f"{task.name}: {note}")
    registered = find_tasks(job.suite, job.tasks, job.compress)
    notes = options.notes_on_levels(registered, job.difficulty)
    if job.suite and job.policies is None and (names := _policy_names(job)):
        notes += catalogue.left_out(names, tasks, job.mode)
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
    left: list[tuple[Task, int]] = []
    for task, contexts in grid.tasks:
        if task.name not in reasons:
            left.append((task, contexts))
    if reasons and (job.tasks is not None or not left):
        raise KVBenchError(f"{next(iter(reasons.values()))}: leave it out of --tasks")
    for reason in reasons.values():
        console.print(f"left out: {reason}", soft_wrap=True, markup=False)
    return replace(grid, tasks=left)


def leave_out(grid: Grid, missing: Mapping[str, str], job: Job) -> Grid:
    """Leaves out the policies that cannot run on the model (:func:`without`)."""
    left = catalogue.without(grid.policies, missing, job.policies)
    return replace(grid, policies=left)
