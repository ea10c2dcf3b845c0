"""``python -m kvbench bench``: how much faster than kvpress's pipeline, and whether every token is the same."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from datasets_gen import TASKS
from kvbench.cli.parameters import Device, MaxKVGB, Mode, Model, Seed, given
from kvbench.experiments.catalogue import check_ratios, choose_policies
from kvbench.experiments.options import check_count, choose, kv_bytes, parse_points
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_text_atomically
from policies import LazyModule
from policies.declaration.levels import RATIO

if TYPE_CHECKING:
    import torch

    from kvbench.benchmarks.engine import Work
    from kvbench.benchmarks.pipeline import Comparison
    from kvbench.benchmarks.suite import Size

engine = LazyModule("kvbench.benchmarks.engine")
measurement = LazyModule("kvbench.benchmarks.measurement")
models = LazyModule("kvbench.models.load")
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
        str | None, typer.Option(help="Names or files of policies; the controls are not added.")
    ] = None,
    ratios: Annotated[str, typer.Option(help="0.1,0.5 or first:last:step, in [0, 1).")] = RATIO.default,
    limit: Annotated[int, typer.Option(help="Contexts per task.")] = 2,
    seed: Seed = 0,
    mode: Mode = "agnostic",
    device: Device = "auto",
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
) -> None:
    """Runs one grid through the engine and through kvpress's pipeline, in float32, and compares times and tokens."""
    for name in given(context):
        if name != "device" and (name in OF_THE_SUITE) != suite:
            option = "--" + name.replace("_", "-")
            raise KVBenchError(
                f"{option} does not go with --suite: leave it out" if suite else f"{option} needs --suite: add that"
            )
    if suite:
        size = suites.TINY if tiny else suites.FULL
        show_suite(only, size, check_count("--repeats", repeats), models.choose_device(device), out)
        return
    contexts = range(check_count("--limit", limit))
    chosen_tasks = choose("task", tasks, TASKS)
    chosen = choose_policies(policies, chosen_tasks, mode)
    check_ratios("bench", chosen)
    points = parse_points({RATIO.name: ratios}, chosen)
    work = [(task, task.example(seed, index)) for task in chosen_tasks for index in contexts]
    treated = setting.Setting(chosen, points, seed, mode, kv_bytes(max_kv_gb))
    loaded = models.load_model(model, device, "float32")
    process.settle()
    if profile:
        show_profile(engine.Work.of(loaded, chosen_tasks[0], chosen), [point.level.value for point in points])
        return
    cells = sum(len(policy.points_among(points)) for policy in chosen)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("kvpress", total=cells * sum(len(example.questions) for _, example in work))
        comparison = pipeline.compare(loaded, work, treated, lambda count: progress.advance(bar, count))
    show_comparison(comparison)


def show_comparison(comparison: "Comparison") -> None:
    """Prints the table and a summary as JSON; :class:`KVBenchError` where a generation differs."""
    output = Console(highlight=False)
    output.print(comparison_table(comparison))
    for policy, ratio, question in comparison.unequal:
        output.print(f"unequal: {policy} at {ratio}, {question}")
    for policy, reason in comparison.failed.items():
        output.print(f"not compared: {policy}, on which kvpress's pipeline failed: {reason}", soft_wrap=True)
    summary = {
        "speedup": round(comparison.speedup, 2),
        "equal": comparison.equal,
        "compared": comparison.compared,
        "engine_seconds": round(comparison.engine_seconds, 3),
        "pipeline_seconds": round(comparison.pipeline_seconds, 3),
    }
    print(json.dumps(summary))
    if comparison.unequal:
        raise KVBenchError(f"{len(comparison.unequal)} of {comparison.compared} generations differ")


def show_suite(only: str | None, size: "Size", repeats: int, device: "torch.device", out: Path) -> None:
    """Measures the rows of the suite and writes each into the file at once, beside other rows of the same machine."""
    report = measurement.Report.on(device, size is suites.TINY).continued(out)
    write_text_atomically(out, report.model_dump_json(indent=1) + "\n")  # found out now rather than after the hour
    for row in suites.run_suite(only, size, repeats, device, lambda name: console.print(f"measuring {name}")):
        report = report.with_row(row, [*suites.ON_CPU, *suites.ON_GPU])
        write_text_atomically(out, report.model_dump_json(indent=1) + "\n")
    table = Table(box=None, pad_edge=False)
    for title in ("", "measured", "lowest", "highest", "target", "what"):
        table.add_column(title, no_wrap=title in ("", "measured"), overflow="fold")
    for row in report.results:
        numbers = [f"{value:.3g}" for value in (row.value, row.lowest, row.highest)]
        style = None if row.met is None else ("green" if row.met else "red")
        table.add_row(row.name, f"{numbers[0]} {row.unit}", *numbers[1:], row.target, row.what, style=style)
    Console(highlight=False).print(table)
    console.print(f"written: {out}", soft_wrap=True)


def show_profile(work: "Work", ratios: Sequence[float]) -> None:
    """Prints the seconds by part of the engine and by operation."""
    times = profiling.profile_engine(work, ratios)
    output = Console(highlight=False)
    parts = Table("part", "seconds", "share", title=f"one context of {len(work.prompt.token_ids)} tokens")
    for name, seconds in times.parts.items():
        parts.add_row(name, f"{seconds:.3f}", f"{seconds / sum(times.parts.values()):.0%}")
    operations = Table("operation", "calls", "seconds", title="operations, by the profiler")
    for name, seconds in times.operations.items():
        operations.add_row(name, f"{times.calls[name]:,}", f"{seconds:.3f}")
    output.print(parts)
    output.print(operations)


def comparison_table(comparison: "Comparison") -> Table:
    """Makes a row for each policy and one for the whole grid; the engine has one time for all policies."""
    table = Table(title=f"kvpress's pipeline against the engine: {comparison.speedup:.1f} times faster")
    for title in ("policy", "kvpress s", "engine s", "equal", "compared"):
        table.add_column(title, justify="left" if title == "policy" else "right")
    for name, counted in comparison.policies.items():
        seconds = f"{counted.pipeline_seconds:.2f}"
        table.add_row(name, seconds, "", str(counted.equal), str(counted.compared))
    table.add_section()
    table.add_row(
        "all",
        f"{comparison.pipeline_seconds:.2f}",
        f"{comparison.engine_seconds:.2f}",
        str(comparison.equal),
        str(comparison.compared),
    )
    return table
