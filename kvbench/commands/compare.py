"""``python -m kvbench compare`` answers: is this press better than the others, and where?"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.engine.options import CELL_SECONDS
from kvbench.experiments.build_grid import check_job
from kvbench.experiments.catalogue import find_policy, press_and_others
from kvbench.experiments.opponents import Opponents, check_common_level, is_run, job_like
from kvbench.experiments.options import AUTO, check_name, check_tolerance
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.dates import with_date
from kvbench.store.run_file import Job
from kvbench.system.console import console
from kvbench.system.errors import GateError, KVBenchError
from policies import LazyModule, Policy

if TYPE_CHECKING:
    from kvbench.experiments.grid import Grid
    from kvbench.publish.compared import Compared, ComparedRun
    from kvbench.store.earlier import EarlierRun
    from leaderboards.aggregate.gate import Gate
    from leaderboards.terminal.result_table import ResultTable

compared = LazyModule("kvbench.publish.compared")
controls = LazyModule("kvbench.run.control")
earlier_runs = LazyModule("kvbench.store.earlier")
forecasts = LazyModule("kvbench.estimate.plan")
gates = LazyModule("leaderboards.aggregate.gate")
lead = LazyModule("leaderboards.aggregate.lead")
levels_found = LazyModule("kvbench.checks.model")
local = LazyModule("kvbench.run.local")
reports = LazyModule("kvbench.run.report")
runs = LazyModule("kvbench.run.execute")
site_list = LazyModule("kvbench.publish.site_list")
significance = LazyModule("leaderboards.statistics.significance")
tables = LazyModule("leaderboards.terminal.table")
verdicts = LazyModule("leaderboards.terminal.verdicts")

OTHERS = "snapkv,expected_attention"
AGAINST_HELP = "Policies, plug-ins and folders of runs, comma-separated, or all, or default."
MAX_LOSS_HELP = f"Exit with status {GateError.status} where the mean loss to one of --against is larger at some level."
FAIL_IF_HELP = f"Exit with status {GateError.status} where the verdict against one of --against is worse at some level."
OF_RUNS = (
    "press",
    "against",
    "max_loss",
    "fail_if",
    "site",
    "every_task",
)  # the options of a comparison of stored runs


def command(
    context: typer.Context,
    press: options.Side,
    against: Annotated[str, typer.Option(help=AGAINST_HELP)] = OTHERS,
    max_loss: Annotated[float | None, typer.Option(metavar="POINTS", help=MAX_LOSS_HELP)] = None,
    fail_if: Annotated[Literal["worse"] | None, typer.Option(help=FAIL_IF_HELP)] = None,
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
    gate = gates.Gate(check_max_loss(max_loss), fail_if is not None)
    opponents = Opponents.of(against)
    earlier = [earlier_runs.EarlierRun.open(folder) for folder in opponents.folders]
    if is_run(press):
        check_nothing_is_run(context, press)
        today = earlier_runs.EarlierRun.open(Path(press))
        named = [find_policy(one).name for one in opponents.policies]
        return result_of(compared.compare_runs(today, named, earlier, site, every_task), gate)
    job = with_date(job_of(context, opponents, earlier), out, name)
    grid = check_job(job)
    mine, others, named = sides_of(job, grid, opponents, earlier)
    check_can_fail(grid, gate)
    loaded = None
    if job.difficulty == AUTO:
        job, loaded = levels_found.with_levels_found(job, grid)
    site_list.make_site_folder("--site", site)  # found out now rather than after the run
    executor = local.on_this_machine(job, loaded)
    folder = out / (
        name
        or f"compare-{Path(job.model).resolve().name}-{job.mode}-{executor.identity.short_hash()}"
    )
    check_is_another(folder, earlier)
    if not folder.exists() and (line := forecasts.forecast_of(executor.model, executor.grid)):
        console.print(f"{line}; less where answers are stored already", soft_wrap=True)
    if few := forecasts.few_contexts_of(executor.grid):
        console.print(few, soft_wrap=True)
    try:
        store = runs.complete(
            executor, folder, look=controls.look_of(job, executor.grid, every_task)
        )
    except controls.UnmasteredError as error:
        return Result([error.table], notes=error.remedies, fault=str(error))
    warnings, fault = reports.warnings_of(store, store.frame(), executor.grid.setting.policies)
    made = compared.compare_press(
        store, mine.name, press, others, named, earlier, site, every_task, warnings
    )
    return result_of(made, gate, fault)


def check_max_loss(points: float | None) -> float | None:
    if points is not None and not 0 <= points < 100:
        raise KVBenchError(
            f"--max-loss is a number of points from 0 to below 100, such as 5, not {points:g}"
        )
    return points


def check_nothing_is_run(context: typer.Context, press: str) -> None:
    """Raises :class:`KVBenchError` for an option of a run where stored runs are compared as they are."""
    if names := options.given_options(context, OF_RUNS):
        option = f"--{names[0].replace('_', '-')}"
        raise KVBenchError(
            f"{press} is compared as it was run: leave out {option}, or name a policy in its place"
        )


def job_of(context: typer.Context, opponents: Opponents, earlier: "Sequence[EarlierRun]") -> Job:
    """Returns what is to be run. Beside the folder of a run, an option that is not given is that of the run."""
    params, levels = context.params, options.given_levels(context)
    if params["name"] is not None:
        check_name(params["name"])
    check_tolerance(params["tolerance"])
    tokens = tokens_of_run(params["context_tokens"], None, params["tasks"])
    given: dict[str, Any] = {**params, "levels": levels, "context_tokens": tokens}
    if opponents.policies:
        given["policies"] = ",".join(opponents.policies)
    if not earlier:
        return Job.of(given)
    names = options.given_options(context)
    chosen = {name: given[name] for name in (*names, *(["policies"] if opponents.policies else []))}
    if levels:
        chosen["levels"] = levels
    return job_like(
        earlier[0].store.run, params["press"], find_policy(params["press"]).name, chosen
    )


def sides_of(
    job: Job, grid: "Grid", opponents: Opponents, earlier: "Sequence[EarlierRun]"
) -> tuple[Policy, list[str], list[str]]:
    """Returns the press, the names of its opponents of this run, and of these those that are named. Raises
    :class:`KVBenchError` for an earlier run that has no level, or no task, of the press."""
    tasks = [task for task, _ in grid.tasks]
    mine, others = press_and_others(str(job.press), job.policies, tasks, job.mode, job.controls)
    _, named = press_and_others(str(job.press), job.policies, tasks, job.mode, controls=False)
    for run in earlier:
        stored = [point.level for point in run.policy(mine.name).points]
        check_common_level(
            mine.name, mine.levels_among(grid.setting.points), stored, run.store.folder
        )
        run.check_asks([task.name for task in tasks], job.seed, job.mode)
    if not opponents.policies:
        return mine, [], []
    return mine, [one.name for one in others], [one.name for one in named]


def check_can_fail(grid: "Grid", gate: "Gate") -> None:
    """Raises :class:`KVBenchError` where no verdict can be given, and the gate asks for one."""
    needed = significance.fewest_clusters()
    few = [f"{count} of {task.name}" for task, count in grid.tasks if count < needed]
    if few and gate.fails_if_worse:
        reason = f"there are too few contexts for any verdict ({', '.join(few)})"
        raise KVBenchError(
            f"--fail-if worse could never fail: {reason}; {needed} are needed, as --limit {needed}"
        )


def check_is_another(folder: Path, earlier: "Sequence[EarlierRun]") -> None:
    for run in earlier:
        if run.store.folder.resolve() == folder.resolve():
            raise KVBenchError(
                f"{folder} is this very run, of the same code, model and questions: nothing can differ"
            )


def result_of(made: "ComparedRun", gate: "Gate", fault: str = "") -> Result:
    """Lays out what was compared, for people and programs."""
    comparisons: Sequence[Compared] = made.comparisons
    store, rows, model = made.store, made.rows, made.store.identity.model
    shown: list[ResultTable] = []
    for one in comparisons:
        shown += verdicts.outcome_tables(one.published.outcomes, one.published.presses)
    shown += [tables.terminal_table(rows, measure) for measure in tables.telling(rows)[:1]]
    shown += [verdicts.verdict_table(one.published.duels, made.unmastered) for one in comparisons]
    notes = [f"{Path(model).name} is {lead.CARRIES_OVER}"] if lead.is_teaching(model) else []
    notes += [
        f"full cache: {', '.join(f'{task} {value:.0f} %' for task, value in lead.full_by_task(rows).items())}"
    ]
    first = comparisons[0].published
    level = first.duels[0].run_at[0]
    look = ["python", "-m", "kvbench", "show", str(store.folder), "--policy", comparisons[0].policy]
    notes += [
        f"examples of its worst answers: {shlex.join([*look, f'--{level.kind}', str(level)])}"
    ]
    notes += [f"pages of every task, with examples beside the texts: {first.next_step}"]
    notes += ["intervals of each cell: the page"]
    pages = [one.published.page for one in comparisons]
    files = {"records": store.folder, "page": pages if len(pages) > 1 else pages[0]}
    warnings = list(dict.fromkeys(warning for one in comparisons for warning in one.warnings))
    fault = fault or made.fault
    fault = fault or made.fault
    if not gate.is_asked or fault:
        return Result(shown, notes=notes, warnings=warnings, files=files, fault=fault)
    try:
        read = [row for one in comparisons for row in one.gate_rows(gate)]
    except KVBenchError as error:
        return Result(shown, notes=notes, warnings=warnings, files=files, fault=str(error))
    shown.insert(0, verdicts.gate_table(read))
    failed = gate.fault(read)
    verdict = "the gate fails" if failed else gate.success(read)
    return Result(shown, verdict, notes, warnings, files, failed_gate=failed)
