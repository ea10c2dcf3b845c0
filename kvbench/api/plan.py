"""Estimates what a run would cost, before it is started: ``kvbench.plan``."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from datasets_gen import unknown_name
from kvbench.api.calls import Call, library_call
from kvbench.api.examined import PlanResult
from kvbench.api.kinds import Levels, Model, Names, Presses, Tasks, Tokenizer
from kvbench.cli.result import Result
from kvbench.estimate import plan as plans
from kvbench.estimate.decoder import DecoderShape, read_shape
from kvbench.estimate.machines import MACHINES, THIS
from kvbench.experiments.arguments import job_values
from kvbench.experiments.build_grid import check_job
from kvbench.experiments.options import check_tolerance
from kvbench.experiments.suites import asked_dtype
from kvbench.handed.scope import find_handed_model
from kvbench.models.names import is_address, model_source
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.run_file import Job, TaskOptions, choose_tolerance
from kvbench.system.errors import KVBenchError
from leaderboards.terminal.result_table import Column, ResultTable
from policies import LazyModule

precision = LazyModule("kvbench.models.precision")
choices = LazyModule("kvbench.estimate.choice")
questions = LazyModule("kvbench.served.job")
servers = LazyModule("kvbench.served.plan")
torch = LazyModule("torch")


@library_call
def plan(
    call: Call,
    model: Model = "reference",
    tokenizer: Tokenizer = None,
    *,
    layers: int | None = None,
    heads: int | None = None,
    key_heads: int | None = None,
    head_size: int = 128,
    parameters: float | None = None,
    suite: str | None = None,
    tasks: Tasks = None,
    profile: str = "quick",
    limit: int | None = None,
    context_tokens: int | str | None = None,
    policies: Presses = None,
    ratios: Levels = None,
    budgets: Levels = None,
    rates: Levels = None,
    bits: Levels = None,
    repeats: int | None = None,
    mode: str = "agnostic",
    max_new_tokens: int | None = None,
    dtype: str = "auto",
    observe: Names = None,
    tolerance: float | None = None,
    machine: str = "h100",
    hours: float | None = None,
) -> PlanResult:
    """Estimates the time, the bytes and the contexts of a run, and lists the assumptions.

    The arguments are the options of ``kvbench plan``; those that :func:`kvbench.run` has too mean
    the same. A shape may stand in place of a model.

    Args:
        model: A name, a folder, or a model in memory, also as a pair with its tokenizer.
        tokenizer: Of a model in memory.
        layers: Of a shape: its layers.
        heads: Of a shape: query heads of a layer.
        key_heads: Of a shape: key heads of a layer.
        head_size: Of a shape: numbers in a key.
        parameters: Of a shape: parameters, in billions.
        suite: The name of a suite, which brings tasks, policies and levels.
        tasks: Names, files, data sets or lists of rows; all generated tasks where none are given.
        profile: How many contexts of each task: ``quick``, or ``paper``.
        limit: Contexts of each task, in place of the profile's.
        context_tokens: Tokens of each context, or ``native`` for the task's own length.
        policies: Names, kvpress presses, their classes, functions, or ``Policy`` objects.
        ratios: Shares of the cache to remove, each in [0, 1).
        budgets: Tokens that are kept.
        rates: Shares of rows that are damaged, each in [0, 1].
        bits: Bits of a number of the cache.
        repeats: Draws of each random policy.
        mode: ``agnostic`` or ``aware``: whether presses see the question.
        max_new_tokens: Tokens of an answer at most.
        dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``.
        observe: Tables of studies, such as ``attention``.
        tolerance: Points of loss below which a level is safe; 5 by default.
        machine: Where it would run: ``h100`` and others, or ``this``, which is measured.
        hours: Of all devices: the contexts and questions that tell most in this time are chosen.

    Returns:
        What a run takes, and what that rests on.

    Raises:
        KVBenchError: An option makes no sense, or there is no such machine or model.

    Example:
        >>> import kvbench
        >>> kvbench.plan(tasks="long_context", limit=100).table()
    """
    check_tolerance(tolerance)
    params = job_values(call.values)
    tokens = tokens_of_run(call["context_tokens"], params["suite"], params["tasks"])
    if is_address(str(call["model"])):
        check_no_hours(hours)
        questions.check_options(call.changed, call["policies"], None)
        planned = Job.of({**params, "context_tokens": tokens})
        rows = servers.plan_rows(str(call["model"]), planned)
        return PlanResult(Result([_figures(rows)], notes=[servers.NOT_INCLUDED]))
    job = make_job(params, call.levels)
    model_name = job.model
    model_source(model_name)
    is_named = all(size is None for size in (layers, heads, key_heads, parameters))
    grid = check_job(job, names_model=is_named and not isinstance(tokens, int))
    machines = (*MACHINES, THIS)
    if machine not in machines:
        raise KVBenchError(unknown_name("machine", machine, machines))
    # Sizes that are given describe no checkpoint, whose dtype could be looked up.
    numbers = _dtype(job, machine, model_name if is_named else "")
    if is_named:
        shape = read_shape(model_name, numbers)
    else:
        shape = make_shape(layers, heads, key_heads, head_size, parameters, numbers)
    if machine == THIS:
        hardware = plans.machine_of_run(grid, shape.heads * shape.head_size, numbers)
    else:
        hardware = MACHINES[machine]
    estimate = plans.make_plan(job, grid, shape, tokens, hardware)
    rows = plans.plan_rows(estimate, choose_tolerance([job]))
    if hours is not None:
        rows.insert(0, (f"in {hours:g} hours", choices.choose_contexts(estimate, hours).words))
    return PlanResult(Result([_figures(rows)], notes=plans.assumptions(estimate)))


def check_no_hours(hours: float | None) -> None:
    """Raises :class:`KVBenchError` where a time is given for a server, whose speed nobody knows."""
    if hours is not None:
        raise KVBenchError("--hours is for a model that is loaded: nobody knows a server's speed")


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
    """Names the dtype in which ``run`` loads the model there; one in memory has its own."""
    if find_handed_model(model) is not None:
        return job.dtype
    # The device is named and not asked for: no GPU has to be here.
    device = torch.device("cpu" if machine == THIS else "cuda")
    dtype = precision.choose_dtype(asked_dtype(job.dtype, job.suite), device, model)
    return str(dtype).removeprefix("torch.")
