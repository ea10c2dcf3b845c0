"""``python -m kvbench bench`` measures how much faster the engine is than kvpress's pipeline, and whether every token
is the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from datasets_gen import RULER, TASKS
from kvbench.cli.parameters import Device, Dtype, MaxKVGB, Mode, Model, Seed, given_parameters
from kvbench.cli.result import Result
from kvbench.experiments.catalogue import check_ratios, choose_policies, unfit_for, without
from kvbench.experiments.options import check_count, choose, kv_bytes, parse_points
from kvbench.prompts.answers import asked_of
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_text_atomically
from leaderboards.terminal.result_table import Column, ResultTable
from policies import LazyModule
from policies.declaration.levels import RATIO

if TYPE_CHECKING:
    import torch

    from kvbench.benchmarks.engine import Work
    from kvbench.benchmarks.pipeline import PipelineComparison
    from kvbench.benchmarks.suite import BenchmarkSize

engine = LazyModule("kvbench.benchmarks.engine")
measurement = LazyModule("kvbench.benchmarks.measurement")
models = LazyModule("kvbench.models.load")
model_shape = LazyModule("kvbench.models.shape")
pipeline = LazyModule("kvbench.benchmarks.pipeline")
process = LazyModule("kvbench.system.process")
profiling = LazyModule("kvbench.benchmarks.profiling")
setting = LazyModule("kvbench.experiments.setting")
suites = LazyModule("kvbench.benchmarks.suite")

OF_THE_SUITE = {"suite", "only", "repeats", "tiny", "out"}


def command(
    context: typer.Context,
    model: Model = "reference",
    tasks: Annotated[str, typer.Option(help="Task names, comma-separated.")] = "base,hops",
    policies: Annotated[
        str | None, typer.Option(help="As in run, but the controls are not added. Default: default.")
    ] = None,
    ratios: Annotated[str, typer.Option(help="0.1,0.5 or first:last:step, in [0, 1).")] = RATIO.default,
    limit: Annotated[int, typer.Option(help="Contexts per task.")] = 2,
    seed: Seed = 0,
    mode: Mode = "agnostic",
    device: Device = "auto",
    dtype: Dtype = "float32",
    max_kv_gb: MaxKVGB = None,
    suite: Annotated[
        bool, typer.Option("--suite", help="Measure the table of targets in docs/performance.md.")
    ] = False,
    only: Annotated[str | None, typer.Option(help="Rows of --suite, comma-separated. Default: all.")] = None,
    repeats: Annotated[int, typer.Option(help="Repeats of every row of --suite.")] = 3,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Run --suite on tiny shapes, only to see whether it works.")
    ] = False,
    out: Annotated[Path, typer.Option(help="File for the measurements of --suite.")] = Path("bench.json"),
    profile: Annotated[bool, typer.Option("--profile", help="Print where the engine's time goes, and stop.")] = False,
) -> Result:
    """Runs one grid through the engine and through kvpress's pipeline, by default in float32, where every token is to
    be the same, and compares times and tokens."""
    for name in given_parameters(context):
        if name != "device" and (name in OF_THE_SUITE) != suite:
            option = "--" + name.replace("_", "-")
            raise KVBenchError(
                f"{option} does not go with --suite: leave it out" if suite else f"{option} needs --suite: add that"
            )
    if suite:
        size = suites.TINY if tiny else suites.FULL
        return measure_suite(only, size, check_count("--repeats", repeats), models.choose_device(device), out)
    contexts = range(check_count("--limit", limit))
    chosen_tasks = choose("task", tasks, TASKS, RULER)
    chosen = choose_policies(policies, chosen_tasks, mode)
    check_ratios("bench", chosen)
    points = parse_points({RATIO.name: ratios}, chosen)
    if shape := model_shape.shape_of(model, device, dtype):
        chosen = without(chosen, unfit_for(chosen, shape), policies)
    chosen_tasks = asked_of(chosen_tasks, model)
    work = [(task, task.example(seed, index)) for task in chosen_tasks for index in contexts]
    treated = setting.Setting(chosen, points, seed, mode, kv_bytes(max_kv_gb))
    loaded = models.load_model(model, device, dtype)
    process.settle()
    if profile:
        return profile_of(engine.Work.of(loaded, chosen_tasks[0], chosen), [point.level.value for point in points])
    cells = sum(len(policy.points_among(points)) for policy in chosen)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("kvpress", total=cells * sum(len(example.questions) for _, example in work))
        comparison = pipeline.compare(loaded, work, treated, lambda count: progress.advance(bar, count))
    return result_of(comparison)


def result_of(comparison: "PipelineComparison") -> Result:
    """Returns the times and the equal generations of each policy; a generation that differs is a fault."""
    columns = (
        Column("policy"),
        Column("pipeline_seconds", "kvpress s", _seconds, right=True),
        Column("engine_seconds", "engine s", _seconds, right=True),
        Column("equal", right=True),
        Column("compared", right=True),
    )
    rows: list[tuple[object, ...]] = [
        (name, counted.pipeline_seconds, None, counted.equal, counted.compared)  # the engine has one time for all
        for name, counted in comparison.policies.items()
    ]
    rows.append(("all", comparison.pipeline_seconds, comparison.engine_seconds, comparison.equal, comparison.compared))
    unequal = [f"unequal: {policy} at {ratio}, {question}" for policy, ratio, question in comparison.unequal]
    failed = [
        f"not compared: {policy}, on which kvpress's pipeline failed: {reason}"
        for policy, reason in comparison.failed.items()
    ]
    verdict = f"{comparison.speedup:.1f} times faster than kvpress's pipeline; {comparison.equal} of "
    verdict += f"{comparison.compared} generations are equal"
    fault = f"{len(comparison.unequal)} of {comparison.compared} generations differ" if comparison.unequal else ""
    if lost := [error for name, error in comparison.errors.items() if name not in comparison.failed]:
        fault = f"{fault}, as some are not there: {lost[0]}"
    return Result([ResultTable("bench", columns, rows)], verdict, notes=[*unequal, *failed], fault=fault)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def measure_suite(only: str | None, size: "BenchmarkSize", repeats: int, device: "torch.device", out: Path) -> Result:
    """Measures the rows of the suite and writes each into the file at once, beside other rows of the same machine."""
    chosen = suites.chosen_rows(only, size, repeats, device)
    report = measurement.Report.on(device, size is suites.TINY).with_rows_of(out)
    write_text_atomically(out, report.model_dump_json(indent=1) + "\n")  # found out now rather than after the hour
    for row in suites.run_suite(chosen, lambda name: console.print(f"measuring {name}")):
        report = report.with_row(row, [*suites.ON_CPU, *suites.ON_GPU])
        write_text_atomically(out, report.model_dump_json(indent=1) + "\n")
    numbers = (Column(name, text=lambda value: f"{value:.3g}", right=True) for name in ("value", "lowest", "highest"))
    columns = (
        Column("name", "row"),
        *numbers,
        Column("unit"),
        Column("target"),
        Column("met", text=lambda met: "" if met is None else "yes" if met else "no", style=_style_of_target),
        Column("what", of_sentences=True),
    )
    rows = [tuple(getattr(row, column.name) for column in columns) for row in report.results]
    return Result([ResultTable("suite", columns, rows)], files={"measurements": out})


def _style_of_target(met: bool | None) -> str:
    return "" if met is None else "green" if met else "red"


def profile_of(work: "Work", ratios: Sequence[float]) -> Result:
    """Returns the seconds by part of the engine and by operation."""
    times = profiling.profile_engine(work, ratios)
    whole = sum(times.parts.values())
    seconds = Column("seconds", text=lambda value: f"{value:.3f}", right=True)
    parts = ResultTable(
        "parts",
        (Column("part"), seconds, Column("share", text=lambda share: f"{share:.0%}", right=True)),
        [(name, spent, spent / whole) for name, spent in times.parts.items()],
        f"one context of {len(work.prompt.token_ids)} tokens",
    )
    operations = ResultTable(
        "operations",
        (Column("operation"), Column("calls", right=True), seconds),
        [(name, times.calls[name], spent) for name, spent in times.operations.items()],
        "operations, by the profiler",
    )
    return Result([parts, operations])
