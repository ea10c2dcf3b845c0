"""``python -m kvbench plan`` estimates what a run would cost, before it is started."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Annotated, Any

import typer

from datasets_gen import unknown_name
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.estimate import plan as plans
from kvbench.estimate.decoder import DecoderShape, read_shape
from kvbench.estimate.machines import MACHINES, THIS
from kvbench.experiments.arguments import job_values
from kvbench.experiments.build_grid import check_job
from kvbench.experiments.options import check_tolerance
from kvbench.experiments.suites import asked_dtype
from kvbench.models.names import is_address, model_source
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.run_file import Job, TaskOptions, choose_tolerance
from kvbench.system.errors import KVBenchError
from leaderboards.terminal.result_table import Column, ResultTable
from policies import LazyModule

precision = LazyModule("kvbench.models.precision")
questions = LazyModule("kvbench.served.job")
servers = LazyModule("kvbench.served.plan")
torch = LazyModule("torch")


def command(
    context: typer.Context,
    model: options.ModelOrServer = "reference",
    layers: Annotated[
        int | None, typer.Option(help="Layers; with the next options instead of a model.")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="Query heads of a layer.")] = None,
    key_heads: Annotated[int | None, typer.Option(help="Key heads of a layer.")] = None,
    head_size: Annotated[int, typer.Option(help="Numbers in a key.")] = 128,
    parameters: Annotated[float | None, typer.Option(help="Parameters, in billions.")] = None,
    suite: options.Suite = None,
    tasks: options.Tasks = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    context_tokens: options.ContextTokens = None,
    policies: options.Policies = None,
    ratios: options.Ratios = None,
    budgets: options.Budgets = None,
    rates: options.Rates = None,
    bits: options.Bits = None,
    repeats: options.Repeats = None,
    mode: options.Mode = "agnostic",
    max_new_tokens: options.MaxNewTokens = None,
    dtype: options.Dtype = "auto",
    observe: options.Observe = None,
    tolerance: options.Tolerance = None,
    machine: Annotated[
        str, typer.Option(help=f"{', '.join(MACHINES)}, or {THIS}, measured.")
    ] = "h100",
) -> Result:
    """Estimates the time, the bytes and the contexts of a run, and lists the assumptions. Raises
    :class:`KVBenchError` for a machine that there is not."""
    check_tolerance(tolerance)
    params = job_values(context.params)
    tokens = tokens_of_run(context_tokens, params["suite"], params["tasks"])
    if is_address(model):
        questions.check_options(options.changed_options(context), policies, None)
        planned = Job.of({**params, "context_tokens": tokens})
        return Result([_figures(servers.plan_rows(model, planned))], notes=[servers.NOT_INCLUDED])
    job = make_job(params, options.given_levels(context))
    model_source(model)
    is_named = all(size is None for size in (layers, heads, key_heads, parameters))
    grid = check_job(job, names_model=is_named and not isinstance(tokens, int))
    machines = (*MACHINES, THIS)
    if machine not in machines:
        raise KVBenchError(unknown_name("machine", machine, machines))
    # Sizes that are given describe no checkpoint, whose dtype could be looked up.
    numbers = _dtype(job, machine, model if is_named else "")
    if is_named:
        shape = read_shape(model, numbers)
    else:
        shape = make_shape(layers, heads, key_heads, head_size, parameters, numbers)
    if machine == THIS:
        hardware = plans.machine_of_run(grid, shape.heads * shape.head_size, numbers)
    else:
        hardware = MACHINES[machine]
    plan = plans.make_plan(job, grid, shape, tokens, hardware)
    rows = plans.plan_rows(plan, choose_tolerance([job]))
    return Result([_figures(rows)], notes=plans.assumptions(plan))


def _figures(rows: Sequence[tuple[str, str]]) -> ResultTable:
    columns = [Column("what"), Column("how much", of_sentences=True)]
    return ResultTable("figures", columns, rows, headed=False)


def make_job(params: Mapping[str, Any], levels: Mapping[str, str]) -> Job:
    """Returns the job whose cost is estimated. Contexts are planned without their length, and where
    facts stand in them costs nothing."""
    without_depth: dict[str, TaskOptions] = {}
    for word, task in params["task_options"].items():
        without_depth[word] = task.model_copy(update={"depth": None})
    changes = {"levels": levels, "context_tokens": None, "task_options": without_depth}
    return Job.of({**params, **changes})


def make_shape(
    layers: int | None,
    heads: int | None,
    key_heads: int | None,
    head_size: int,
    parameters: float | None,
    dtype: str,
) -> DecoderShape:
    """Returns the shape that options describe in place of a model. Raises :class:`KVBenchError`
    where one of them is missing, and for a number of parameters that no model has."""
    if layers is None or heads is None or key_heads is None or parameters is None:
        sizes = {
            "--layers": layers,
            "--heads": heads,
            "--key-heads": key_heads,
            "--parameters": parameters,
        }
        missing = ", ".join(option for option, value in sizes.items() if value is None)
        raise KVBenchError(f"a shape needs {missing} too, or give --model alone")
    if not 0 < parameters < inf:
        raise KVBenchError(f"--parameters is more than 0 billion, not {parameters:g}")
    name, count = f"{parameters:g} B, {layers} layers", int(parameters * 1e9)
    return DecoderShape(name, layers, heads, key_heads, head_size, count, dtype)


def _dtype(job: Job, machine: str, model: str) -> str:
    """Names the dtype in which ``run`` loads the model there."""
    # The device is named and not asked for: no GPU has to be here.
    device = torch.device("cpu" if machine == THIS else "cuda")
    dtype = precision.choose_dtype(asked_dtype(job.dtype, job.suite), device, model)
    return str(dtype).removeprefix("torch.")
