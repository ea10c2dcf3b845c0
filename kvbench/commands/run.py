"""``python -m kvbench run`` runs the main job."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments import catalogue
from kvbench.experiments.arguments import job_values
from kvbench.experiments.build_grid import at_found_levels, check_job
from kvbench.experiments.grid import Grid
from kvbench.experiments.options import AUTO, check_name, check_tolerance
from kvbench.models.names import is_address
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.dates import with_date
from kvbench.store.run_file import RUN_FILE, Job, choose_tolerance, read_run_file
from kvbench.system.console import console
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


def command(
    context: typer.Context,
    model: options.ModelOrServer = "reference",
    suite: options.Suite = None,
    tasks: options.Tasks = None,
    policies: options.Policies = None,
    ratios: options.Ratios = None,
    budgets: options.Budgets = None,
    rates: options.Rates = None,
    bits: options.Bits = None,
    repeats: options.Repeats = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    context_tokens: options.ContextTokens = None,
    max_new_tokens: options.MaxNewTokens = None,
    difficulty: options.Difficulty = None,
    seed: options.Seed = 0,
    mode: options.Modes = "agnostic",
    observe: options.Observe = None,
    device: options.DeviceOfRun = "auto",
    dtype: options.Dtype = "auto",
    out: options.Runs = Path("runs"),
    name: options.RunName = None,
    site: options.Site = None,
    tolerance: options.Tolerance = None,
    max_kv_gb: options.MaxKVGB = None,
    date: options.Date = None,
    executor: options.Executor = "local",
    every_task: options.EveryTask = False,
) -> Result:
    """Runs tasks and policies over levels, stores every answer, and builds the page."""
    if name is not None:
        check_name(name)
    check_tolerance(tolerance)
    params = job_values(context.params)
    tokens = tokens_of_run(context_tokens, params["suite"], params["tasks"])
    levels = options.given_levels(context)
    params |= {"levels": levels, "context_tokens": tokens}
    if is_address(model):
        questions.check_options(options.changed_options(context), policies, difficulty)
        site_list.make_site_folder("--site", site)
        check_writable("--out", out)
        served = servers.run_on_server(model, Job.of(params), name, out)
        return publish(served, [POLICIES[FULL]], site, tolerance, every_task)
    jobs: list[Job] = []
    for mode_options in _options_by_mode(params["mode"], policies):
        jobs.append(Job.of({**params, **mode_options}))
    run_names = _names_by_mode(name, jobs)
    plans: list[tuple[Job, Grid]] = []
    for job, run_name in zip(jobs, run_names, strict=True):
        begun = _with_date_and_levels(job, run_name, out)
        plans.append((begun, check_job(begun)))
    site_list.make_site_folder("--site", site)  # a fault shows now rather than after the run
    check_writable("--out", out)
    where = (params["executor"], params["cluster"])
    try:
        done = _run_modes(plans, run_names, out, *where, every_task)
    except controls.UnmasteredError as error:
        return Result([error.table], notes=error.remedies, fault=str(error))
    (store, policies_of_run), *others = done
    other_stores = [other for other, _ in others]
    result = publish(store, policies_of_run, site, tolerance, every_task, other_stores)
    for other in others:
        result = _with_what_went_wrong(result, *other, every_task)
    return result


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
