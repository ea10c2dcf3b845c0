"""Answers whether a press is better than others, and where: ``kvbench.compare``."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kvbench.api import placing
from kvbench.api.calls import Call, library_call
from kvbench.api.comparison import ComparisonResult
from kvbench.api.kinds import Folder, Levels, Model, Opponents, Press, Tasks, Tokenizer
from kvbench.cli.result import Result
from kvbench.experiments.arguments import job_values
from kvbench.experiments.build_grid import at_found_levels, check_job
from kvbench.experiments.catalogue import find_policy, press_and_others
from kvbench.experiments.opponents import Opponents as NamedOpponents
from kvbench.experiments.opponents import check_common_level, is_run, job_like
from kvbench.experiments.options import AUTO, check_name, check_tolerance
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.dates import with_date
from kvbench.store.run_file import Job
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from leaderboards.statistics.paired_difference import fewest_clusters
from policies import LazyModule
from policies.declaration.names import split_outside_brackets

if TYPE_CHECKING:
    from kvbench.execution.local import LocalExecutor
    from kvbench.experiments.grid import Grid
    from kvbench.publish.compared import ComparedRun
    from kvbench.store.earlier import EarlierRun
    from kvbench.store.store import Store
    from leaderboards.aggregate.gate import Gate, GateRow
    from leaderboards.terminal.result_table import ResultTable

compared = LazyModule("kvbench.publish.compared")
controls = LazyModule("kvbench.execution.control")
earlier_runs = LazyModule("kvbench.store.earlier")
forecasts = LazyModule("kvbench.estimate.plan")
gates = LazyModule("leaderboards.aggregate.gate")
lead = LazyModule("leaderboards.aggregate.leading_measures")
levels_found = LazyModule("kvbench.checks.mastery")
local = LazyModule("kvbench.execution.local")
reports = LazyModule("kvbench.execution.report")
runs = LazyModule("kvbench.execution.execute")
site_list = LazyModule("kvbench.publish.site_list")
tables = LazyModule("leaderboards.terminal.table")
verdicts = LazyModule("leaderboards.terminal.verdicts")

OTHERS = "snapkv,expected_attention"
OPTIONS_OF_STORED_RUNS = (
    *("press", "against", "beside", "max_loss", "fail_if"),
    *("site", "every_task"),
)


@library_call
def compare(
    call: Call,
    press: Press,
    *,
    against: Opponents = OTHERS,
    beside: "Opponents | None" = None,
    max_loss: float | None = None,
    fail_if: Literal["worse"] | None = None,
    tasks: Tasks = None,
    ratios: Levels = None,
    budgets: Levels = None,
    rates: Levels = None,
    bits: Levels = None,
    repeats: int | None = None,
    profile: str = "quick",
    limit: int | None = None,
    context_tokens: int | str | None = None,
    difficulty: str | None = None,
    model: Model = "reference",
    tokenizer: Tokenizer = None,
    seed: int = 0,
    mode: str = "agnostic",
    device: str = "auto",
    dtype: str = "auto",
    out: Folder = Path("runs"),
    name: str | None = None,
    site: Folder | None = None,
    tolerance: float | None = None,
    executor: str = "local",
    max_kv_gb: float | None = None,
    date: str | None = None,
    every_task: bool = False,
) -> ComparisonResult:
    """Runs what is missing of a press and of those it is compared with, and tells where it is
    better or worse.

    The arguments are the options of ``kvbench compare``; those that :func:`kvbench.run` has too
    mean the same.

    Args:
        press: A name, a kvpress press, its class, a function, a ``Policy``, or a stored run.
        against: The same, or several of them; ``board``: all methods whose answers kvbench ships,
            among which the press gets a place.
        beside: Runs, whose own losses stand in one table with those of a stored run: of their
            policies, or of a full cache that was asked twice, which is the noise.
        max_loss: Points; the gate fails where the mean loss to an opponent is larger at some level.
        fail_if: ``worse``: the gate fails where the verdict against an opponent is that.
        tasks: Names, files, data sets or lists of rows; all generated tasks where none are given.
        ratios: Shares of the cache to remove, each in [0, 1).
        budgets: Tokens that are kept.
        rates: Shares of rows that are damaged, each in [0, 1].
        bits: Bits of a number of the cache.
        repeats: Draws of each random policy.
        profile: How many contexts of each task: ``quick``, or ``paper``.
        limit: Contexts of each task, in place of the profile's.
        context_tokens: Tokens of each context, or ``native`` for the task's own length.
        difficulty: A level of the tasks, ``task=level,...``, or ``auto``.
        model: A name, a folder, or a model in memory, as a pair with its tokenizer.
        tokenizer: Of a model in memory.
        seed: Of the contexts and of random policies.
        mode: ``agnostic`` or ``aware``: whether presses see the question.
        device: ``auto``, ``cpu`` or ``cuda``, for a model that is loaded.
        dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``, for a model that is loaded.
        out: The folder that holds the runs.
        name: Of the run; by default it is made from what identifies it.
        site: The folder of the page.
        tolerance: Points of loss below which a level is safe; 5 by default.
        executor: ``local``, with how long a press may take.
        max_kv_gb: Gigabytes of keys and values that are live at once.
        date: The day that a chat template tells, such as ``2026-11-28``.
        every_task: Whether tasks count too that the full cache cannot do.

    Returns:
        The verdict, and the tables behind it.

    Raises:
        KVBenchError: An option makes no sense, nothing can be compared, or the run was interrupted.

    Example:
        >>> import kvbench
        >>> kvbench.compare("keydiff", against="snapkv", tasks="base", limit=12).verdict
    """
    if str(call["against"]) == placing.BOARD:
        return placing.place_on_board(call)
    folder, names = Path(out), str(call["press"])
    gate = gates.Gate(check_max_loss(max_loss), fail_if is not None)
    opponents = NamedOpponents.of(str(call["against"]))
    earlier = [earlier_runs.EarlierRun.open(place) for place in opponents.folders]
    if is_run(names):
        check_nothing_is_run(call, names)
        neighbours = open_beside(call["beside"])
        stored = compare_stored(
            names, opponents, earlier, call.path("site"), every_task, neighbours
        )
        return ComparisonResult(stored, describe(stored, gate), call.handed)
    if beside is not None:
        raise KVBenchError(
            "--beside stands beside a stored run: give its folder in place of a press"
        )
    job = with_date(make_job(call, opponents, earlier), folder, name)
    grid = check_job(job)
    sides = choose_sides(job, grid, opponents, earlier)
    check_can_fail(grid, gate)
    loaded = None
    if job.difficulty == AUTO:
        levels, loaded = levels_found.find_levels(job, grid)
        job, grid = at_found_levels(job, levels)
    site_list.make_site_folder("--site", call.path("site"))  # a fault shows before the run
    machine = local.on_this_machine(job, grid, loaded)
    default_name = f"compare-{Path(job.model).resolve().name}-{job.mode}"
    # The hash of the identity lets the same call find its own run again.
    place = folder / (name or f"{default_name}-{machine.identity.short_hash()}")
    check_is_another(place, earlier)
    store = _complete(machine, place, job, every_task)
    warnings, fault = reports.collect_warnings(store, store.frame(), machine.grid.policies)
    run = compared.compare_press(
        store,
        sides.press,
        names,
        sides.others,
        sides.named,
        earlier,
        call.path("site"),
        every_task,
        warnings,
    )
    return ComparisonResult(run, describe(run, gate, fault), call.handed)


def open_beside(text: str | None) -> "list[EarlierRun]":
    """Opens the runs of ``--beside``; raises :class:`KVBenchError` for what is none."""
    if text is None:
        return []
    return [earlier_runs.EarlierRun.open(Path(word)) for word in split_outside_brackets(text)]


def compare_stored(
    press: str,
    opponents: NamedOpponents,
    earlier: "Sequence[EarlierRun]",
    site: Path | None,
    every_task: bool,
    beside: "Sequence[EarlierRun]" = (),
) -> "ComparedRun":
    """Compares the press of a stored run with its other policies and with earlier runs. Nothing is
    run."""
    today = earlier_runs.EarlierRun.open(Path(press))
    others: list[str] = []
    for policy in opponents.policies:
        others.append(find_policy(policy).name)
    stored: ComparedRun = compared.compare_runs(today, others, earlier, site, every_task, beside)
    return stored


def _complete(machine: "LocalExecutor", folder: Path, job: Job, every_task: bool) -> "Store":
    """Says what a run will take, and runs what is missing of it. Raises :class:`UnmasteredError`
    where the model cannot answer questions from files."""
    if not folder.exists() and (line := forecasts.forecast_line(machine.model, machine.grid)):
        console.print(f"{line}; less where answers are stored already", soft_wrap=True)
    if few := forecasts.few_contexts_in(machine.grid):
        console.print(few, soft_wrap=True)
    look = controls.full_cache_check(job, machine.grid, every_task)
    store: Store = runs.complete(machine, folder, look=look)
    return store


def check_max_loss(points: float | None) -> float | None:
    """Returns the points; raises :class:`KVBenchError` for a number that no loss can have."""
    if points is not None and not 0 <= points < 100:
        allowed = "a number of points from 0 to below 100, such as 5"
        raise KVBenchError(f"--max-loss is {allowed}, not {points:g}")
    return points


def check_nothing_is_run(call: Call, press: str) -> None:
    """Raises :class:`KVBenchError` for an option of a run where stored runs are compared as they
    are."""
    for name in call.values:
        if name in call.explicit and name not in OPTIONS_OF_STORED_RUNS:
            advice = f"leave out --{name.replace('_', '-')}, or name a policy in its place"
            raise KVBenchError(f"{press} is compared as it was run: {advice}")


def make_job(call: Call, opponents: NamedOpponents, earlier: "Sequence[EarlierRun]") -> Job:
    """Returns what is to be run; raises :class:`KVBenchError` for options that make no sense.
    Beside the folder of a run, an option that is not given is that of the run."""
    params, levels = job_values(call.values), call.levels
    if params["executor"] != "local":
        reason = f"--executor {params['executor']} is for run"
        raise KVBenchError(f"{reason}: compare works on this machine alone")
    if params["name"] is not None:
        check_name(params["name"])
    check_tolerance(params["tolerance"])
    tokens = tokens_of_run(params["context_tokens"], None, params["tasks"])
    values: dict[str, Any] = {**params, "levels": levels, "context_tokens": tokens}
    chosen = [option for option in call.values if option in call.explicit]
    # What stood in the brackets of an option was given with it.
    if "tasks" in chosen:
        chosen.append("task_options")
        if params["tasks"] is None:  # all(...) alone names no task
            chosen.remove("tasks")
    if "executor" in chosen and "cell_seconds" in params:
        chosen.append("cell_seconds")
    if call.handed.model is not None:
        chosen += ["device", "dtype"]
    if opponents.policies:
        values["policies"] = ",".join(opponents.policies)
        chosen.append("policies")
    # Without an earlier run the defaults of the command hold; beside one, its own options do.
    if not earlier:
        return Job.of(values)
    changes = {option: values[option] for option in chosen}
    if levels:
        changes["levels"] = levels
    press = params["press"]
    return job_like(earlier[0].store.run, press, find_policy(press).name, changes)


@dataclass(frozen=True)
class Sides:
    """Names what is compared in a run."""

    press: str
    others: list[str]  # the opponents of this run
    named: list[str]  # those of them that somebody named


def choose_sides(
    job: Job, grid: "Grid", opponents: NamedOpponents, earlier: "Sequence[EarlierRun]"
) -> Sides:
    """Returns the sides of a comparison; raises :class:`KVBenchError` for an earlier run that has
    no level, or no task, of the press."""
    press, tasks = str(job.press), [task for task, _ in grid.tasks]
    mine, others = press_and_others(press, job.policies, tasks, job.mode, job.controls)
    _, named = press_and_others(press, job.policies, tasks, job.mode, controls=False)
    levels = mine.levels_among(grid.points)
    for run in earlier:
        stored = [point.level for point in run.policy(mine.name).points]
        check_common_level(mine.name, levels, stored, run.store.folder)
        run.check_asks([task.name for task in tasks], job.seed, job.mode)
    if not opponents.policies:
        return Sides(mine.name, [], [])
    other_names = [policy.name for policy in others]
    return Sides(mine.name, other_names, [policy.name for policy in named])


def check_can_fail(grid: "Grid", gate: "Gate") -> None:
    """Raises :class:`KVBenchError` where no verdict can be given, and the gate asks for one."""
    needed = fewest_clusters()
    few = [f"{count} of {task.name}" for task, count in grid.tasks if count < needed]
    if few and gate.fails_if_worse:
        reason = f"there are too few contexts for any verdict ({', '.join(few)})"
        advice = f"{needed} are needed, as --limit {needed}"
        raise KVBenchError(f"--fail-if worse could never fail: {reason}; {advice}")


def check_is_another(folder: Path, earlier: "Sequence[EarlierRun]") -> None:
    """Raises :class:`KVBenchError` where a run would be compared with itself."""
    for run in earlier:
        if run.store.folder.resolve() == folder.resolve():
            reason = "of the same code, model and questions: nothing can differ"
            raise KVBenchError(f"{folder} is this very run, {reason}")


def describe(run: "ComparedRun", gate: "Gate", fault: str = "") -> Result:
    """Lays out what was compared, for people and programs. ``fault``: of the run."""
    store, comparisons = run.store, run.comparisons
    shown: list[ResultTable] = []
    warnings: list[str] = []
    for comparison in comparisons:
        shown += verdicts.outcome_tables(
            comparison.published.outcomes, comparison.published.presses
        )
        warnings += comparison.warnings
    for measure in tables.telling(run.rows)[:1]:
        shown.append(tables.terminal_table(run.rows, measure))
    for comparison in comparisons:
        if comparison.published.table:
            shown.append(verdicts.beside_table(comparison.published.table))
        if comparison.published.changed:
            shown.append(verdicts.changed_table(comparison.published.changed))
        shown.append(verdicts.verdict_table(comparison.published.duels, run.unmastered))
    pages = [comparison.published.page for comparison in comparisons]
    files = {"records": store.folder, "page": pages if len(pages) > 1 else pages[0]}
    notes = _notes(run)
    warnings = list(dict.fromkeys(warnings))
    fault = fault or run.fault
    # A fault comes before the gate: a press that failed has lost nothing that could be weighed.
    if not gate.is_asked or fault:
        return Result(shown, notes=notes, warnings=warnings, files=files, fault=fault)
    rows: list[GateRow] = []
    try:
        for comparison in comparisons:
            rows += comparison.gate_rows(gate)
    except KVBenchError as error:
        return Result(shown, notes=notes, warnings=warnings, files=files, fault=str(error))
    shown.insert(0, verdicts.gate_table(rows))
    failed = gate.fault(rows)
    verdict = "the gate fails" if failed else gate.success(rows)
    return Result(shown, verdict, notes, warnings, files, failed_gate=failed)


def _notes(run: "ComparedRun") -> list[str]:
    """Says what the full cache does, and where to look further."""
    notes = []
    store, model = run.store, run.store.identity.model
    if lead.is_teaching(model):
        notes.append(f"{Path(model).name} is {lead.CARRIES_OVER}")
    shares: list[str] = []
    for task, value in lead.full_by_task(run.rows).items():
        shares.append(f"{task} {value:.0f} %")
    notes.append(f"full cache: {', '.join(shares)}")
    first = run.comparisons[0]
    level = first.published.duels[0].run_at[0]
    words = ["python", "-m", "kvbench", "show", str(store.folder), "--policy", first.policy]
    command = shlex.join([*words, f"--{level.kind}", str(level)])
    notes.append(f"examples of its worst answers: {command}")
    next_step = first.published.next_step
    notes.append(f"pages of every task, with examples beside the texts: {next_step}")
    notes.append("intervals of each cell: the page")
    return notes
