"""``python -m kvbench plan`` estimates what a run would cost, before it is started."""

from pathlib import Path
from typing import Annotated

import typer

from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.estimate.constants import FILE, Constants
from kvbench.estimate.machine import MACHINES, THIS, check_machine, find_machine
from kvbench.experiments.build_grid import check_job
from kvbench.experiments.catalogue import DEFAULT
from kvbench.models.names import model_source
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.run_file import Job
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable, write_text_atomically
from leaderboards.terminal.result_table import Column, ResultTable
from policies import LazyModule

measuring = LazyModule("kvbench.estimate.measure")
pages = LazyModule("kvbench.estimate.page")
precision = LazyModule("kvbench.models.precision")
requests = LazyModule("kvbench.estimate.request")
shapes = LazyModule("kvbench.estimate.shape")


def command(
    context: typer.Context,
    model: options.Model = "reference",
    layers: Annotated[int | None, typer.Option(help="Layers; with the next options instead of a model.")] = None,
    heads: Annotated[int | None, typer.Option(help="Query heads of a layer.")] = None,
    key_heads: Annotated[int | None, typer.Option(help="Key heads of a layer.")] = None,
    head_size: Annotated[int, typer.Option(help="Numbers in a key.")] = 128,
    parameters: Annotated[float | None, typer.Option(help="Parameters, in billions.")] = None,
    bytes_per_number: Annotated[
        int | None, typer.Option(help="Bytes of a number in weights and cache. Default: 2; on this machine as in run.")
    ] = None,
    tasks: options.Tasks = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    data: options.Data = None,
    context_tokens: options.ContextTokens = None,
    questions: Annotated[float | None, typer.Option(help="Questions about a context. Default: the task's.")] = None,
    policies: Annotated[str, typer.Option(help="As in run: names, all, or default.")] = DEFAULT,
    levels: options.LevelTexts = options.NONE_GIVEN,
    repeats: options.Repeats = None,
    mode: options.Mode = "agnostic",
    machine: Annotated[
        str, typer.Option(help=f"{', '.join(MACHINES)}, or {THIS}: this processor, which is measured.")
    ] = "h100",
    constants: Annotated[Path, typer.Option(help="A file of constants.", show_default="those of kvbench")] = FILE,
    measure: Annotated[Path | None, typer.Option(help="Measure this machine for minutes and write this file.")] = None,
) -> Result:
    """Estimates units, device hours and bytes of a run, and lists the assumptions."""
    if measure is not None:
        return measure_to(measure)
    tokens = tokens_of_run(context_tokens, None, tasks)
    job = Job.of({**context.params, "levels": levels, "context_tokens": None})
    model_source(model)
    check_job(job)
    check_machine(machine)
    known = Constants.read(constants)
    if bytes_per_number is None:
        bytes_per_number = precision.faster_dtype().itemsize if machine == THIS else 2
    given = {"--layers": layers, "--heads": heads, "--key-heads": key_heads, "--parameters": parameters}
    if all(value is None for value in given.values()):
        shape = shapes.shape_of(model, bytes_per_number)
    elif missing := [option for option, value in given.items() if value is None]:
        raise KVBenchError(f"a shape needs {', '.join(missing)} too, or give --model alone")
    else:
        shape = shapes.shape_from(layers, heads, key_heads, head_size, parameters, bytes_per_number)
    of_plan = find_machine(machine, shape.heads * shape.head_size, shape.bytes_per_number)
    plan = requests.PlanRequest(shape, job, tokens, questions, of_plan).plan(known)
    figures = ResultTable("figures", [Column("what"), Column("how much")], pages.rows_of(plan), headed=False)
    slowest = ResultTable(
        "slowest presses",
        [Column("policy"), Column("time of one worker")],
        pages.slowest_policies(plan),
        "presses that take longest",
        headed=False,
    )
    return Result([figures, slowest], notes=pages.assumptions(plan))


def measure_to(path: Path) -> Result:
    """Measures the constants of this machine and writes them to a file."""
    check_writable("--measure", path.parent)
    with console.status("measuring") as status:
        constants = measuring.measure(lambda name: status.update(f"measuring: {name}"))
    write_text_atomically(path, constants.model_dump_json(indent=1) + "\n")
    return Result(files={f"constants of {constants.machine}": path})
