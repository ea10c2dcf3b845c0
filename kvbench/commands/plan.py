"""``python -m kvbench plan``: what a run would cost, before it is started."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kvbench.atomic import write_text_atomically
from kvbench.catalogue import EVERYTHING
from kvbench.commands.parameters import Budgets, Limit, Mode, Model, Profile, Ratios, Tasks
from kvbench.console import console
from kvbench.errors import KVBenchError
from kvbench.planning.constants import Constants, measured_constants
from kvbench.planning.machine import MACHINES, MEASURED
from policies import LazyModule

if TYPE_CHECKING:
    from kvbench.planning.shape import Shape

asking = LazyModule("kvbench.planning.ask")
measuring = LazyModule("kvbench.planning.measure")
pages = LazyModule("kvbench.planning.page")
shapes = LazyModule("kvbench.planning.shape")

DEFAULT = "default"


def command(
    model: Model = "reference",
    layers: Annotated[int | None, typer.Option(help="Instead of a model: its layers, and what follows.")] = None,
    heads: Annotated[int | None, typer.Option(help="Query heads of a layer.")] = None,
    key_heads: Annotated[int | None, typer.Option(help="Key heads of a layer.")] = None,
    head_size: Annotated[int, typer.Option(help="Numbers in a key.")] = 128,
    parameters: Annotated[float | None, typer.Option(help="In billions.")] = None,
    bytes_per_number: Annotated[int, typer.Option(help="Of weights and cache: 2 for bfloat16.")] = 2,
    tasks: Tasks = None,
    profile: Profile = "quick",
    limit: Limit = None,
    context_tokens: Annotated[int | None, typer.Option(help="Of every context. Default: what tasks have.")] = None,
    questions: Annotated[float | None, typer.Option(help="Of a context. Default: what tasks have.")] = None,
    policies: Annotated[str, typer.Option(help="As in run: names, all, or default.")] = EVERYTHING,
    ratios: Ratios = None,
    budgets: Budgets = None,
    mode: Mode = "agnostic",
    machine: Annotated[
        str, typer.Option(help=f"{', '.join(MACHINES)}, or {MEASURED}: that of the constants.")
    ] = "h100",
    memory_gb: Annotated[float, typer.Option(help=f"Of the machine {MEASURED}.")] = 16.0,
    constants: Annotated[Path | None, typer.Option(help="File of constants. Default: what comes with kvbench.")] = None,
    measure: Annotated[Path | None, typer.Option(help="Measure this machine for minutes, and write the file.")] = None,
) -> None:
    """Tells units, device hours and bytes of a run, and what that rests on."""
    if measure is not None:
        measure_to(measure)
        return
    known = measured_constants() if constants is None else Constants.read(constants)
    shape = given_shape(model, layers, heads, key_heads, head_size, parameters, bytes_per_number)
    counts = (tasks, profile, limit, context_tokens, questions, None if policies == DEFAULT else policies)
    plan = asking.Request(shape, *counts, ratios, budgets, mode, machine, memory_gb).plan(known)
    output = Console(highlight=False)
    for title, rows in (("", pages.rows_of(plan)), ("presses that take longest", pages.longest(plan.cost))):
        table = Table(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        output.print(table)
    for line in pages.assumptions(plan):
        output.print(f"- {line}")


def measure_to(path: Path) -> None:
    with console.status("measuring") as status:
        found = measuring.measure(lambda what: status.update(f"measuring: {what}"))
    write_text_atomically(path, found.model_dump_json(indent=1) + "\n")
    console.print(f"constants of {found.machine}: {path}", soft_wrap=True)


def given_shape(
    model: str,
    layers: int | None,
    heads: int | None,
    key_heads: int | None,
    head_size: int,
    parameters: float | None,
    bytes_per_number: int,
) -> "Shape":
    """The shape that the options tell, or else that of the model."""
    given = {"--layers": layers, "--heads": heads, "--key-heads": key_heads, "--parameters": parameters}
    shape: Shape
    if all(value is None for value in given.values()):
        shape = shapes.shape_of(model, bytes_per_number)
        return shape
    missing = [option for option, value in given.items() if value is None]
    if layers is None or heads is None or key_heads is None or parameters is None:
        raise KVBenchError(f"a shape needs {', '.join(missing)} too, or give --model alone")
    if not 0 < parameters < math.inf:
        raise KVBenchError(f"--parameters are more than 0 billion, not {parameters:g}")
    name = f"{parameters:g} B, {layers} layers"
    shape = shapes.Shape(name, layers, heads, key_heads, head_size, int(parameters * 1e9), bytes_per_number)
    return shape
