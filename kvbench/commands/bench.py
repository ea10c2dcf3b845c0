"""``python -m kvbench bench``: how much faster than kvpress's pipeline, and whether every token is the same."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from datasets_gen import TASKS
from kvbench.bench import Comparison, compare
from kvbench.catalogue import choose_policies
from kvbench.commands.parameters import Device, MaxKVGB, Mode, Model, Seed
from kvbench.console import console
from kvbench.engine.treatment import ratios_of
from kvbench.errors import KVBenchError
from kvbench.models import load_model
from kvbench.options import DEFAULT_RATIOS, check_count, choose, kv_bytes, parse_ratios
from kvbench.process import settle
from kvbench.setting import Setting


def command(
    model: Model = "reference",
    tasks: Annotated[str, typer.Option(help="Task names, comma-separated.")] = "base,hops",
    policies: Annotated[str | None, typer.Option(help="As in run, but without the controls.")] = None,
    ratios: Annotated[str, typer.Option(help="0.1,0.5 or first:last:step, in [0, 1).")] = DEFAULT_RATIOS,
    limit: Annotated[int, typer.Option(help="Contexts per task.")] = 2,
    seed: Seed = 0,
    mode: Mode = "agnostic",
    device: Device = "auto",
    max_kv_gb: MaxKVGB = None,
) -> None:
    """Runs one grid through the engine and through kvpress's pipeline, in float32, and compares times and tokens."""
    asked_ratios = parse_ratios(ratios)
    contexts = range(check_count("--limit", limit))
    named = choose("task", tasks, TASKS)
    chosen = choose_policies(policies, named, mode)
    work = [(task, task.example(seed, index)) for task in named for index in contexts]
    setting = Setting(chosen, asked_ratios, seed, mode, kv_bytes(max_kv_gb))
    loaded = load_model(model, device, "float32")
    settle()
    cells = sum(len(ratios_of(policy, asked_ratios)) for policy in chosen)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("kvpress", total=cells * sum(len(example.questions) for _, example in work))
        comparison = compare(loaded, work, setting, lambda count: progress.advance(bar, count))
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


def comparison_table(comparison: Comparison) -> Table:
    """A row for each policy, and the whole grid; the engine runs all policies at once and has one time only."""
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
