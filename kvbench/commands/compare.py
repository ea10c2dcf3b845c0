"""``python -m kvbench compare`` answers: is this press better than the others, and where?"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from kvbench.api.compare import OTHERS, compare
from kvbench.cli import parameters as options
from kvbench.cli.result import Result, UnmasteredError
from kvbench.system.errors import GateError

AGAINST_HELP = (
    "Policies, plug-ins and folders of runs, comma-separated, or all, or default; or board: all "
    "methods whose answers kvbench ships."
)
EXIT_HELP = f"Exit with status {GateError.status} where the"
MAX_LOSS_HELP = f"{EXIT_HELP} mean loss to one of --against is larger at some level."
FAIL_IF_HELP = f"{EXIT_HELP} verdict against one of --against is worse at some level."
BESIDE_HELP = (
    "Folders of runs, comma-separated, whose own losses stand in one table with a stored run's: of "
    "their policies, or of a full cache that was asked twice, which is the noise."
)


def command(
    context: typer.Context,
    press: options.Side,
    against: Annotated[str, typer.Option(help=AGAINST_HELP)] = OTHERS,
    beside: Annotated[str | None, typer.Option(metavar="RUNS", help=BESIDE_HELP)] = None,
    max_loss: Annotated[float | None, typer.Option(metavar="POINTS", help=MAX_LOSS_HELP)] = None,
    fail_if: Annotated[Literal["worse"] | None, typer.Option(help=FAIL_IF_HELP)] = None,
    tasks: options.Tasks = None,
    ratios: options.Ratios = None,
    budgets: options.Budgets = None,
    rates: options.Rates = None,
    bits: options.Bits = None,
    repeats: options.Repeats = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    context_tokens: options.ContextTokens = None,
    difficulty: options.Difficulty = None,
    model: options.Model = "reference",
    seed: options.Seed = 0,
    mode: options.Mode = "agnostic",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    out: options.Runs = Path("runs"),
    name: options.RunName = None,
    site: options.Site = None,
    tolerance: options.Tolerance = None,
    executor: options.Executor = "local",
    max_kv_gb: options.MaxKVGB = None,
    date: options.Date = None,
    every_task: options.EveryTask = False,
) -> Result:
    """Runs what is missing of a press and of those it is compared with, and tells where it is
    better or worse."""
    try:
        return compare(**options.given_values(context)).shown
    except UnmasteredError as error:
        return error.shown
