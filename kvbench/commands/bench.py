"""``python -m kvbench bench`` times the engine beside kvpress's own pipeline, and compares every
token."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from datasets_gen import RULER, TASKS
from kvbench.cli.parameters import Device, Dtype, MaxKVGB, Mode, Model, Seed
from kvbench.cli.result import Result
from kvbench.experiments.catalogue import check_ratios, choose_policies, unfit_for, without
from kvbench.experiments.grid import Grid
from kvbench.experiments.options import check_count, choose, kv_bytes, parse_points
from kvbench.prompts.mode import phrase_tasks
from kvbench.system.console import progress_bar
from kvbench.system.process import settle
from leaderboards.terminal.result_table import Column, ResultTable
from policies import LazyModule
from policies.declaration.levels import RATIO

if TYPE_CHECKING:
    from kvbench.checks.against_kvpress import PipelineComparison

models = LazyModule("kvbench.models.load")
model_shape = LazyModule("kvbench.models.pretrained")
pipeline = LazyModule("kvbench.checks.against_kvpress")


def command(
    model: Model = "reference",
    tasks: Annotated[str, Option(help="Task names, comma-separated.")] = "base,hops",
    policies: Annotated[
        str | None, Option(help="As in run, without controls. Default: default.")
    ] = None,
    ratios: Annotated[str, Option(help="0.1,0.5 or first:last:step, in [0, 1).")] = RATIO.default,
    limit: Annotated[int, Option(help="Contexts per task.")] = 2,
    seed: Seed = 0,
    mode: Mode = "agnostic",
    device: Device = "auto",
    dtype: Dtype = "float32",
    max_kv_gb: MaxKVGB = None,
) -> Result:
    """Runs one grid through the engine and through kvpress's pipeline, and compares times and every
    token."""
    contexts = range(check_count("--limit", limit))
    chosen_tasks = choose("task", tasks, TASKS, RULER)
    chosen = choose_policies(policies, chosen_tasks, mode)
    check_ratios("bench", chosen)
    points = parse_points({RATIO.name: ratios}, chosen)
    if shape := model_shape.read_cache_shape(model, device, dtype):
        chosen = without(chosen, unfit_for(chosen, shape), policies)
    counts, work = [], []
    for task in phrase_tasks(chosen_tasks, model):
        counts.append((task, limit))
        # Examples are made before the model is loaded: a fault in them shows at once.
        work += [(task, task.example(seed, index)) for index in contexts]
    grid = Grid(counts, chosen, points, seed, mode, max_kv_bytes=kv_bytes(max_kv_gb))
    loaded = models.load_model(model, device, dtype)
    settle()
    cells = sum(len(policy.points_among(points)) for policy in chosen)
    questions = sum(len(example.questions) for _, example in work)
    with progress_bar() as progress:
        bar = progress.add_task("kvpress", total=cells * questions)
        comparison = pipeline.compare(
            loaded, work, grid, lambda count: progress.advance(bar, count)
        )
    return describe_comparison(comparison)


def describe_comparison(comparison: "PipelineComparison") -> Result:
    """Returns the times and the equal generations of each policy; a generation that differs is a
    fault."""
    count, unequal = len(comparison.cells), comparison.unequal
    equal_count = count - len(unequal)
    total = sum(comparison.seconds.values())
    rows: list[tuple[object, ...]] = []
    for name, seconds in comparison.seconds.items():
        equal: list[bool] = []
        for (policy, *_), is_equal in comparison.cells.items():
            if policy == name:
                equal.append(is_equal)
        # The engine has one time for all.
        rows.append((name, seconds, None, sum(equal), len(equal)))
    rows.append(("all", total, comparison.engine_seconds, equal_count, count))
    columns = (
        Column("policy"),
        Column("pipeline_seconds", "kvpress s", _seconds_text, right=True),
        Column("engine_seconds", "engine s", _seconds_text, right=True),
        Column("equal", right=True),
        Column("compared", right=True),
    )
    notes: list[str] = []
    for policy, ratio, question in unequal:
        notes.append(f"unequal: {policy} at {ratio}, {question}")
    for policy, reason in comparison.failed.items():
        failure = f"kvpress's pipeline failed: {reason}"
        notes.append(f"not compared: {policy}, on which {failure}")
    speed = f"{total / comparison.engine_seconds:.1f} times faster than kvpress's pipeline"
    verdict = f"{speed}; {equal_count} of {count} generations are equal"
    fault = f"{len(unequal)} of {count} generations differ" if unequal else ""
    for policy, error in comparison.errors.items():
        if policy not in comparison.failed:
            fault = f"{fault}, as some are not there: {error}"
            break
    table = ResultTable("bench", columns, rows)
    return Result([table], verdict, notes=notes, fault=fault)


def _seconds_text(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"
