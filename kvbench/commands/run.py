"""``python -m kvbench run`` runs the main job."""

from pathlib import Path

import typer

from kvbench.api.run import run
from kvbench.cli import parameters as options
from kvbench.cli.result import Result, UnmasteredError


def command(
    context: typer.Context,
    model: options.ModelOrServer = "reference",
    suite: options.Suite = None,
    tasks: options.Tasks = None,
    policies: options.Policies = None,
    ratios: options.Ratios = None,
    budgets: options.Budgets = None,
    rates: options.Rates = None,
    bits: options.Bits = None,
    repeats: options.Repeats = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    context_tokens: options.ContextTokens = None,
    max_new_tokens: options.MaxNewTokens = None,
    difficulty: options.Difficulty = None,
    seed: options.Seed = 0,
    mode: options.Modes = "agnostic",
    observe: options.Observe = None,
    device: options.DeviceOfRun = "auto",
    dtype: options.Dtype = "auto",
    out: options.Runs = Path("runs"),
    name: options.RunName = None,
    site: options.Site = None,
    tolerance: options.Tolerance = None,
    max_kv_gb: options.MaxKVGB = None,
    date: options.Date = None,
    executor: options.Executor = "local",
    every_task: options.EveryTask = False,
) -> Result:
    """Runs tasks and policies over levels, stores every answer, and builds the page."""
    try:
        return run(**options.given_values(context)).shown
    except UnmasteredError as error:
        return error.shown
