"""Runs tasks and policies over levels, and builds the pages: ``kvbench.run``."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.api.calls import Call, library_call
from kvbench.api.kinds import Folder, Levels, Model, Names, Presses, Tasks, Tokenizer
from kvbench.api.results import RunResult
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments import catalogue
from kvbench.experiments.arguments import job_values
from kvbench.experiments.build_grid import at_found_levels, check_job
from kvbench.experiments.grid import Grid
from kvbench.experiments.options import AUTO, check_name, check_tolerance
from kvbench.handed.scope import Handed
from kvbench.models.names import is_address
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.dates import with_date
from kvbench.store.run_file import RUN_FILE, Job, choose_tolerance, read_run_file
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable
from policies import FULL, POLICIES, LazyModule, Policy

if TYPE_CHECKING:
    from kvbench.execution.execute import Executor
    from kvbench.models.load import LoadedModel
    from kvbench.store.store import Store

controls = LazyModule("kvbench.execution.control")
forecasts = LazyModule("kvbench.estimate.plan")
levels_found = LazyModule("kvbench.checks.mastery")
local = LazyModule("kvbench.execution.local")
losses = LazyModule("leaderboards.terminal.losses")
lead = LazyModule("leaderboards.aggregate.leading_measures")
attacks = LazyModule("leaderboards.aggregate.attacks")
attack_tables = LazyModule("leaderboards.terminal.attacks")
questions = LazyModule("kvbench.served.job")
ray = LazyModule("kvbench.execution.on_ray")
reports = LazyModule("kvbench.execution.report")
runs = LazyModule("kvbench.execution.execute")
servers = LazyModule("kvbench.served.run")
safe_ratio = LazyModule("leaderboards.boards.safe_ratio")
site_list = LazyModule("kvbench.publish.site_list")
sites = LazyModule("kvbench.publish.site")
tables = LazyModule("leaderboards.terminal.table")


@library_call
def run(
    call: Call,
    model: Model = "reference",
    tokenizer: Tokenizer = None,
    *,
    suite: str | None = None,
    tasks: Tasks = None,
    policies: Presses = None,
    ratios: Levels = None,
    budgets: Levels = None,
    rates: Levels = None,
    bits: Levels = None,
    repeats: int | None = None,
    profile: str = "quick",
    limit: int | None = None,
    context_tokens: int | str | None = None,
    max_new_tokens: int | None = None,
    difficulty: str | None = None,
    seed: int = 0,
    mode: str = "agnostic",
    observe: Names = None,
    device: str = "auto",
    dtype: str = "auto",
    out: Folder = Path("runs"),
    name: str | None = None,
    site: Folder | None = None,
    tolerance: float | None = None,
    max_kv_gb: float | None = None,
    date: str | None = None,
    executor: str = "local",
    every_task: bool = False,
) -> RunResult:
    """Runs tasks and policies over levels, stores every answer, and builds the pages.

    The arguments are the options of ``kvbench run``. What is stored already in the folder of the
    run is not run again, so that a call that was interrupted goes on where it was.

    Args:
        model: A name of ``kvbench ls models``, a folder, a GGUF file, a hub name, the address of a
            server, or a model in memory, also as a pair with its tokenizer.
        tokenizer: Of a model in memory.
        suite: The name of a suite, which brings tasks, policies and levels.
        tasks: Names, files, data sets or lists of rows; all generated tasks where none are given.
        policies: Names, kvpress presses, their classes, functions, or ``Policy`` objects.
        ratios: Shares of the cache to remove, each in [0, 1).
        budgets: Tokens that are kept.
        rates: Shares of rows that are damaged, each in [0, 1].
        bits: Bits of a number of the cache.
        repeats: Draws of each random policy.
        profile: How many contexts of each task: ``quick``, or ``paper``.
        limit: Contexts of each task, in place of the profile's.
        context_tokens: Tokens of each context, or ``native`` for the task's own length.
        max_new_tokens: Tokens of an answer at most.
        difficulty: A level of the tasks, ``task=level,...``, or ``auto``.
        seed: Of the contexts and of random policies.
        mode: ``agnostic``, ``aware`` or ``both``: whether presses see the question.
        observe: Tables of studies, such as ``attention``.
        device: ``auto``, ``cpu`` or ``cuda``, for a model that is loaded.
        dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``, for a model that is loaded.
        out: The folder that holds the runs.
        name: Of the run; by default it is made from what identifies it.
        site: The folder of the pages.
        tolerance: Points of loss below which a level is safe; 5 by default.
        max_kv_gb: Gigabytes of keys and values that are live at once.
        date: The day that a chat template tells, such as ``2026-11-28``.
        executor: ``local``, or ``ray(...)`` for a cluster.
        every_task: Whether tasks count too that the full cache cannot do.

    Returns:
        The stored run, with tables as pandas frames, figures, pages, and the matrix of the first page.

    Raises:
        KVBenchError: An option makes no sense, the model cannot be run, or the run was interrupted.

    Example:
        >>> import kvbench
        >>> result = kvbench.run(tasks=["base"], policies=["snapkv"], ratios=[0.5], limit=6)
        >>> result.board()
    """
    if name is not None:
        check_name(name)
    check_tolerance(tolerance)
    folder = Path(out)
    params = job_values(call.values)
    tokens = tokens_of_run(call["context_tokens"], params["suite"], params["tasks"])
    params |= {"levels": call.levels, "context_tokens": tokens}
    if is_address(str(call["model"])):
        return _run_on_server(call, params)
    jobs: list[Job] = []
    for mode_options in _options_by_mode(params["mode"], call["policies"]):
        jobs.append(Job.of({**params, **mode_options}))
    run_names = _names_by_mode(name, jobs)
    plans: list[tuple[Job, Grid]] = []
    for job, run_name in zip(jobs, run_names, strict=True):
        begun = _with_date_and_levels(job, run_name, folder)
        plans.append((begun, check_job(begun)))
    site_list.make_site_folder("--site", call.path("site"))  # a fault shows before the run
    check_writable("--out", folder)
    check_reaches_workers(params["executor"], call.handed)
    where = (params["executor"], params["cluster"])
    done = _run_modes(plans, run_names, folder, *where, every_task)
    (store, policies_of_run), *others = done
    other_stores = [other for other, _ in others]
    shown = publish(store, policies_of_run, call.path("site"), tolerance, every_task, other_stores)
    for other in others:
        shown = _with_what_went_wrong(shown, *other, every_task)
    return RunResult([store, *other_stores], every_task, tolerance, call.handed, shown)


def _run_on_server(call: Call, params: Mapping[str, Any]) -> RunResult:
    """Asks a server the questions of a run, and publishes its answers."""
    address, name, out = str(call["model"]), call["name"], Path(call["out"])
    questions.check_options(call.changed, call["policies"], call["difficulty"])
    site_list.make_site_folder("--site", call.path("site"))
    check_writable("--out", out)
    served: Store = servers.run_on_server(address, Job.of(params), name, out)
    tolerance, every_task = call["tolerance"], call["every_task"]
    shown = publish(served, [POLICIES[FULL]], call.path("site"), tolerance, every_task)
    return RunResult([served], every_task, tolerance, call.handed, shown)


def _run_modes(
    plans: Sequence[tuple[Job, Grid]],
    names: Sequence[str | None],
    out: Path,
    executor: str,
    cluster: Mapping[str, Any],
    every_task: bool,
) -> "list[tuple[Store, Sequence[Policy]]]":
    """Runs the job of each mode, on one model, which is loaded once; returns the stores, each with
    its policies. Raises :class:`UnmasteredError` where the model cannot answer questions from
    files."""
    plans, loaded = _with_levels_found(plans)
    done: list[tuple[Store, Sequence[Policy]]] = []
    for (job, grid), name in zip(plans, names, strict=True):
        is_new = name is None or not (out / name / RUN_FILE).exists()
        with _executor(executor, cluster, job, grid, is_new, loaded) as chosen:
            default_name = f"{Path(job.model).resolve().name}-{job.mode}"
            folder = out / (name or f"{default_name}-{chosen.identity.short_hash()}")
            look = controls.full_cache_check(job, chosen.grid, every_task)
            store = runs.complete(chosen, folder, look=look)
            done.append((store, chosen.grid.policies))
            # Handed on to the next mode, which takes it if it is the model that it would load.
            loaded = chosen.model
    return done


def check_reaches_workers(executor: str, handed: Handed) -> None:
    """Raises :class:`KVBenchError` where workers of Ray would need what is in the memory of this
    process: they load models, presses and tasks by their names."""
    if executor == "ray" and not handed.is_empty:
        raise KVBenchError(
            "ray: its workers load models, presses and tasks by names: write yours into files, or "
            "leave executor out"
        )


def _with_levels_found(
    plans: Sequence[tuple[Job, Grid]],
) -> "tuple[list[tuple[Job, Grid]], LoadedModel | None]":
    """Returns jobs and grids at the levels that the model masters, where a job leaves them open,
    and the model, if it was loaded for that. The levels are those of the full cache, and so the
    same in both modes."""
    settled: list[tuple[Job, Grid]] = []
    levels = None
    loaded: LoadedModel | None = None
    for job, grid in plans:
        if job.difficulty != AUTO:
            settled.append((job, grid))
            continue
        if levels is None:
            levels, loaded = levels_found.find_levels(job, grid)
        # A task at another level has other contexts: the grid above only said what to look for.
        settled.append(at_found_levels(job, levels))
    return settled, loaded


def _with_what_went_wrong(
    result: Result, store: "Store", policies: Sequence[Policy], every_task: bool
) -> Result:
    """Adds what went wrong in the run of another mode, whose numbers stand on the pages."""
    records = store.frame()
    mode = f"mode {store.identity.mode}"
    warnings, fault = reports.collect_warnings(store, records, policies)
    if not fault:
        fault = reports.describe_failures(sites.rows_of_run(store, records, every_task))
    # The faults of all modes end the command together, behind all tables.
    faults = [result.fault] if result.fault else []
    if fault:
        faults.append(f"{mode}: {fault}")
    of_mode = [f"{line} ({mode})" for line in warnings]
    return replace(result, warnings=[*result.warnings, *of_mode], fault="; ".join(faults))


def _options_by_mode(mode: str, policies: str | None) -> list[dict[str, str | None]]:
    """Returns the options in which the job of each mode differs; presses that need the question are
    left out where it is not seen."""
    if mode != options.BOTH:
        return [{"mode": mode}]
    without_question = catalogue.without_question(policies)
    return [{"mode": "agnostic", "policies": without_question}, {"mode": "aware"}]


def _names_by_mode(name: str | None, jobs: Sequence[Job]) -> list[str | None]:
    """Returns the name of the run of each mode: the first has the name that is given."""
    names = [name]
    for job in jobs[1:]:
        names.append(name and f"{name}-{job.mode}")
    return names


def _with_date_and_levels(job: Job, name: str | None, out: Path) -> Job:
    """Decides what a job leaves open and a run that was begun says: the date, and the levels of
    tasks."""
    if job.difficulty == AUTO and name is not None and (out / name / RUN_FILE).exists():
        begun = read_run_file(out / name)
        if begun.job:
            job = job.model_copy(update={"difficulty": begun.job.difficulty})
    return with_date(job, out, name)


def _executor(
    name: str,
    cluster: Mapping[str, Any],
    job: Job,
    grid: Grid,
    is_new: bool,
    loaded: "LoadedModel | None" = None,
) -> "AbstractContextManager[Executor]":
    """Returns the executor ``local``, which forecasts a new run, or ``ray``. ``cluster``: what
    stands behind it in brackets. ``loaded``: the model, if it is here already, which workers of Ray
    load themselves."""
    if name == "ray":
        on_ray: AbstractContextManager[Executor] = ray.on_ray(job, grid, ray.Cluster(**cluster))
        return on_ray
    here = local.on_this_machine(job, grid, loaded)
    if is_new:
        counts = [count for _, count in here.grid.tasks]
        parts = (
            forecasts.forecast_line(here.model, here.grid),
            safe_ratio.contexts_line(counts, choose_tolerance([job])),
            forecasts.few_contexts_in(here.grid),
        )
        console.print("; ".join(filter(None, parts)), soft_wrap=True)
    return nullcontext(here)


def publish(
    store: "Store",
    policies: Sequence[Policy],
    site: Path | None,
    tolerance: float | None = None,
    every_task: bool = False,
    others: Sequence["Store"] = (),
) -> Result:
    """Builds the pages, and returns the tables with what went wrong."""
    records = store.frame()
    published = sites.publish_site(store, records, site, tolerance, every_task, others)
    rows, results = published.rows, published.results
    points = results.tolerance
    warnings, fault = reports.collect_warnings(store, records, policies)
    shown = [tables.terminal_table(rows, measure) for measure in tables.telling(rows)]
    shown.append(losses.loss_table(results.rows, results.standings, points))
    if cells := attacks.attack_cells(records):
        shown.append(attack_tables.attacks_table(cells))
    files = {"records": store.folder, "page": published.pages}
    doubts = lead.unmastered_line(rows)
    notes = tables.few_contexts(rows, points)
    fault = fault or reports.describe_failures(rows)
    return Result(shown, doubts, notes, warnings, files, is_doubt=bool(doubts), fault=fault)
