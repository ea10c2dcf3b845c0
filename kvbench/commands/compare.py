"""``python -m kvbench compare`` answers: is this press better than the others, and where?"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.engine.options import CELL_SECONDS
from kvbench.experiments.build_grid import check_job
from kvbench.experiments.catalogue import press_and_others
from kvbench.experiments.options import AUTO, check_name, check_tolerance
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.dates import with_date
from kvbench.store.run_file import Job
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from policies import FULL, LazyModule

if TYPE_CHECKING:
    from kvbench.experiments.grid import Grid
    from kvbench.store.store import Store

controls = LazyModule("kvbench.run.control")
forecasts = LazyModule("kvbench.estimate.plan")
lead = LazyModule("leaderboards.aggregate.lead")
levels_found = LazyModule("kvbench.checks.model")
local = LazyModule("kvbench.run.local")
places = LazyModule("kvbench.publish.places")
reports = LazyModule("kvbench.run.report")
runs = LazyModule("kvbench.run.execute")
site_list = LazyModule("kvbench.publish.site_list")
sites = LazyModule("kvbench.publish.site")
tables = LazyModule("leaderboards.terminal.table")
verdicts = LazyModule("leaderboards.terminal.verdicts")

OTHERS = "snapkv,expected_attention"


def command(
    context: typer.Context,
    press: options.Press,
    against: Annotated[str, typer.Option(help="Policies and plug-ins, comma-separated, or all, or default.")] = OTHERS,
    tasks: options.Tasks = None,
    ratios: options.Ratios = None,
    budgets: options.Budgets = None,
    rates: options.Rates = None,
    bits: options.Bits = None,
    repeats: options.Repeats = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    data: options.Data = None,
    context_tokens: options.ContextTokens = None,
    answer_prefix: options.AnswerPrefix = "auto",
    difficulty: options.Difficulty = None,
    model: options.Model = "reference",
    seed: options.Seed = 0,
    mode: options.Mode = "agnostic",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    out: options.Runs = Path("runs"),
    name: options.RunName = None,
    site: options.Site = None,
    tolerance: options.Tolerance = None,
    cell_seconds: options.CellSeconds = CELL_SECONDS,
    max_kv_gb: options.MaxKVGB = None,
    date: options.Date = None,
    every_task: options.EveryTask = False,
) -> Result:
    """Runs what is missing of a press and of those it is compared with, and tells where it is better or worse."""
    if name is not None:
        check_name(name)
    check_tolerance(tolerance)
    tokens = tokens_of_run(context_tokens, None, tasks)
    levels = options.given_levels(context)
    job = Job.of({**context.params, "policies": against, "levels": levels, "context_tokens": tokens})
    job = with_date(job, out, name)
    grid = check_job(job)
    loaded = None
    if job.difficulty == AUTO:
        job, loaded = levels_found.with_levels_found(job, grid)
    site_list.make_site_folder("--site", site)  # found out now rather than after the run
    executor = local.on_this_machine(job, loaded)
    folder = out / (name or f"compare-{Path(model).resolve().name}-{mode}-{executor.identity.short_hash()}")
    if not folder.exists() and (line := forecasts.forecast_of(executor.model, executor.grid)):
        console.print(f"{line}; less where answers are stored already", soft_wrap=True)
    try:
        store = runs.complete(executor, folder, look=controls.look_of(job, executor.grid, every_task))
    except controls.UnmasteredError as error:
        return Result([error.table], notes=error.remedies, fault=str(error))
    return verdict_of(store, executor.grid, job, site, every_task)


def verdict_of(store: "Store", grid: "Grid", job: Job, site: Path | None, every_task: bool) -> Result:
    """Compares what a run has of its press and of the others, and builds the page."""
    folder, model = Path(store.folder), job.model
    mine, others = press_and_others(str(job.press), job.policies, [task for task, _ in grid.tasks], job.mode)
    records = store.frame()
    if reason := reports.fails_always(records, FULL):
        raise KVBenchError(reason)
    if reason := reports.fails_always(records, mine.name):
        raise KVBenchError(reports.broken(mine.name, reason, str(job.press)))
    rows = sites.publish_summary(store, records)
    unmastered = {} if every_task else lead.reasons_by_task(rows)
    warnings, fault = reports.warnings_of(store, records, grid.setting.policies)
    names = [other.name for other in others]
    comparison = sites.publish_comparison(store, records, mine.name, names, site, unmastered, warnings)
    met = {duel.other for duel in comparison.duels}
    warnings += [
        f"no verdict against {one.name}: no cell of both is complete"
        for one in others
        if places.without_places(one.name) not in met
    ]
    shown = [verdicts.pooled_table(comparison.pooled, comparison.presses)]
    shown += [tables.terminal_table(rows, measure) for measure in tables.telling(rows)[:1]]
    shown += [verdicts.verdict_table(comparison.duels, unmastered)]
    files = {"records": folder, "page": comparison.page}
    notes = [f"{Path(model).name} is {lead.CARRIES_OVER}"] if lead.is_teaching(model) else []
    notes += [f"full cache: {', '.join(f'{task} {value:.0f} %' for task, value in lead.full_by_task(rows).items())}"]
    level = comparison.duels[0].level
    look = ["python", "-m", "kvbench", "show", str(folder), "--policy", mine.name, f"--{level.kind}", str(level)]
    notes += [f"examples of its worst answers: {shlex.join(look)}"]
    notes += [f"pages of every task, with examples beside the texts: {comparison.next_step}"]
    notes += ["intervals of each cell: the page"]
    return Result(shown, notes=notes, warnings=warnings, files=files, fault=fault or reports.failures_of(rows))
