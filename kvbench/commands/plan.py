"""``python -m kvbench plan`` estimates what a run would cost, before it is started."""

from math import inf
from typing import Annotated

import typer

from datasets_gen import unknown_name
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.estimate import plan as plans
from kvbench.experiments.build_grid import check_job
from kvbench.experiments.options import check_tolerance
from kvbench.models.names import model_source
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.run_file import Job, tolerance_of
from kvbench.system.errors import KVBenchError
from leaderboards.terminal.result_table import Column, ResultTable
from policies import LazyModule

precision = LazyModule("kvbench.models.precision")


def command(
    context: typer.Context,
    model: options.Model = "reference",
    layers: Annotated[int | None, typer.Option(help="Layers; with the next options instead of a model.")] = None,
    heads: Annotated[int | None, typer.Option(help="Query heads of a layer.")] = None,
    key_heads: Annotated[int | None, typer.Option(help="Key heads of a layer.")] = None,
    head_size: Annotated[int, typer.Option(help="Numbers in a key.")] = 128,
    parameters: Annotated[float | None, typer.Option(help="Parameters, in billions.")] = None,
    suite: options.Suite = None,
    tasks: options.Tasks = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    data: options.Data = None,
    context_tokens: options.ContextTokens = None,
    policies: options.Policies = None,
    ratios: options.Ratios = None,
    budgets: options.Budgets = None,
    rates: options.Rates = None,
    bits: options.Bits = None,
    repeats: options.Repeats = None,
    mode: options.Mode = "agnostic",
    tolerance: options.Tolerance = None,
    machine: Annotated[str, typer.Option(help=f"{', '.join(plans.MACHINES)}, or {plans.THIS}, measured.")] = "h100",
) -> Result:
    """Estimates the time, the bytes and the contexts of a run, and lists the assumptions."""
    check_tolerance(tolerance)
    tokens = tokens_of_run(context_tokens, suite, tasks)
    job = Job.of({**context.params, "levels": options.given_levels(context), "context_tokens": None})
    model_source(model)
    check_job(job)
    if machine not in (known := (*plans.MACHINES, plans.THIS)):
        raise KVBenchError(unknown_name("machine", machine, known))
    size = precision.faster_dtype().itemsize if machine == plans.THIS else 2  # bytes of a number, as in run
    given = {"--layers": layers, "--heads": heads, "--key-heads": key_heads, "--parameters": parameters}
    missing = [option for option, value in given.items() if value is None]
    if len(missing) == len(given):
        shape = plans.shape_of(model, size)
    elif layers is None or heads is None or key_heads is None or parameters is None:
        raise KVBenchError(f"a shape needs {', '.join(missing)} too, or give --model alone")
    elif not 0 < parameters < inf:
        raise KVBenchError(f"--parameters is more than 0 billion, not {parameters:g}")
    else:
        name, count = f"{parameters:g} B, {layers} layers", int(parameters * 1e9)
        shape = plans.DecoderShape(name, layers, heads, key_heads, head_size, count, size)
    on = plans.this_machine(shape.heads * shape.head_size, size) if machine == plans.THIS else plans.MACHINES[machine]
    plan = plans.plan_of(job, shape, tokens, on)
    figures = ResultTable(
        "figures",
        [Column("what"), Column("how much", of_sentences=True)],
        plans.rows_of(plan, tolerance_of([job])),
        headed=False,
    )
    return Result([figures], notes=plans.assumptions(plan))
