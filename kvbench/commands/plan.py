"""``python -m kvbench plan`` estimates what a run would cost, before it is started."""

from typing import Annotated

import typer

from kvbench.api.plan import plan
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.estimate.machines import MACHINES, THIS


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
    hours: Annotated[
        float | None,
        typer.Option(help="Choose the contexts and questions that tell most in this time."),
    ] = None,
) -> Result:
    """Estimates the time, the bytes and the contexts of a run, and lists the assumptions."""
    return plan(**options.given_values(context)).shown
