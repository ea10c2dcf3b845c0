"""``python -m kvbench doctor`` answers: is this press sound, or is this model fit for the
benchmark?"""

from typing import Annotated

import typer
from typer import Option

from kvbench.api.doctor import doctor
from kvbench.cli import parameters as options
from kvbench.cli.result import Result

KV_HELP = (
    "The passport of a model's cache: its rows by layer, and which formats of fewer bits they "
    "stand, foretold from one text in less than a minute."
)
TEST_HELP = "With --kv: asks questions with each format too, and says which forecasts came true."


def command(
    context: typer.Context,
    press: options.PressOrModel = None,
    model: options.Model = "reference",
    tasks: options.Tasks = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    kv: Annotated[bool, Option("--kv", help=KV_HELP)] = False,
    test: Annotated[bool, Option("--test", help=TEST_HELP)] = False,
    site: options.Site = None,
) -> Result:
    """Checks one press against the contract of every policy; fails if the press breaks it. Without
    a press, it checks whether the model is fit for the benchmark, and fails if it masters no
    task."""
    return doctor(**options.given_values(context)).shown
