"""Runs a module as a command, as the makers of the models and of the documents do: what goes wrong is told in one line,
as by ``python -m kvbench``."""

import sys
from collections.abc import Callable

import typer

from kvbench.system.console import console
from kvbench.system.errors import KVBenchError


def run_module(main: Callable[..., None]) -> None:
    """Calls it with the options of the command line; ends the process with status 1 where it raises such an error."""
    program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    program.command()(main)
    try:
        program()
    except (KVBenchError, OSError) as error:
        console.print(f"error: {error}", style="red", soft_wrap=True)
        sys.exit(1)
