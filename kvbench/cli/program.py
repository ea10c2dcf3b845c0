"""``kvbench COMMAND``: finds the command, prints its result, and turns errors into one line and an
exit status."""

import importlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.table import Table

import kvbench
from datasets_gen import DatasetError, unknown_name
from kvbench.cli.former import check_spelling
from kvbench.cli.result import Result
from kvbench.cli.words import check_interpreter, check_words
from kvbench.system.console import SafeConsole, console, write_any_character
from kvbench.system.errors import (
    InterruptedRunError,
    KVBenchError,
    as_user_error,
    unexpected_error,
)
from kvbench.system.process import answer_interrupts, leave_to_parent

COMMANDS = {
    "run": "Run tasks and policies over ratios, and build the page",
    "site": "Build the pages of one or more finished runs",
    "figures": "Draw a run for print: curves, maps and distributions",
    "score": "Score the stored outputs of a run again, without a model",
    "bench": "Time the engine against kvpress's own pipeline, and compare every token",
    "plan": "Tell what a run would cost: hours, bytes, fitting cards, "
    "and contexts that show a difference",
    "ls": "List tasks, policies, metrics or models",
    "fetch": "Fetch a natural model by its name; afterwards no command needs a network for it",
    "export": "Write a task as a Hugging Face dataset",
    "compare": "Tell where a press is better, worse or not distinguished from others, "
    "with its intervals",
    "claims": "Check published claims about KV caches: holds, does not hold, or undecided",
    "doctor": "Examine a press (budget, determinism, time), or a model: "
    "is it fit, what can a board show",
    "show": "Print an example of a task, or the worst answers of a run, "
    "with their evidence in colour",
    "import-kvpress": "Put results of kvpress's own evaluation on a page, marked as imported",
    "check-submission": "Validate a run made by somebody else, "
    "its scores computed again from its outputs",
}
EXAMPLES = {  # of a first use, which a reader can copy
    "run": "run --tasks base,hops --policies snapkv,knorm --ratios 0.5,0.9 --name first",
    "site": "site runs/first",
    "figures": "figures runs/first --formats pdf",
    "score": "score runs/first",
    "bench": "bench --policies snapkv --ratios 0.5 --limit 1",
    "plan": "plan --tasks long_context --limit 100 --machine h100",
    "ls": "ls policies --family scorer",
    "fetch": "fetch smollm2",
    "export": "export --task hops --limit 100",
    "compare": "compare mine.py:MyPress --against snapkv --tasks base",
    "claims": "claims --only F,E --limit 16",
    "doctor": "doctor mine.py:MyPress",
    "show": "show runs/first --policy snapkv --ratio 0.9",
    "import-kvpress": "import-kvpress results",
    "check-submission": "check-submission runs/first",
}
OUTPUT_OPTIONS = ("--json", "--quiet")
OF_EVERY_COMMAND = (
    "Every command: --json prints one JSON object instead of tables; "
    "--quiet prints results, warnings and errors, and no progress."
)

LONGEST_LINE = 2000  # characters of an error


def show_overview() -> None:
    table = Table.grid(padding=(0, 2))
    for name, text in COMMANDS.items():
        table.add_row(f"  {name}", text)
    console = SafeConsole()
    console.print("kvbench: what a KV-cache treatment breaks, at which budget, and why\n")
    console.print("usage: python -m kvbench COMMAND [OPTIONS]\n", table, sep="\n")
    console.print(
        f"\npython -m kvbench COMMAND --help tells the options of a command. {OF_EVERY_COMMAND}"
    )


def program() -> None:
    """Runs the command of this process and ends it: ``kvbench`` and ``python -m kvbench`` both call
    it."""
    answer_interrupts()
    write_any_character()
    # For the command kvbench: presses of package.module:factory may lie in the current folder.
    sys.path.append("")
    status = main()
    leave_to_parent()  # all is said, and Python's own end would answer with a traceback
    sys.exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        check_spelling(words)
        check_words(words)
        if not words or words[0] in ("--help", "-h", "help"):
            show_overview()
        elif words[0] == "--version":
            print(f"kvbench {kvbench.__version__}", flush=True)
        else:
            _call(words[0], words[1:])
    except KeyboardInterrupt:
        return _complain("interrupted", InterruptedRunError.status)
    except BrokenPipeError:  # whoever read the output has seen enough
        # Without it Python complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        explained = as_user_error(error) or unexpected_error(error)
        return _complain(str(explained), explained.status)
    return 0


def _complain(message: str, status: int) -> int:
    """Prints one line. What it repeats of a file or of the command is cut, as nobody reads a page
    of it."""
    # What cannot be broken, as a path or a list without spaces, is cut by itself first.
    short = re.sub(r"(\S{300})\S+", r"\1 …", message)
    line = short if len(short) <= LONGEST_LINE else f"{short[:LONGEST_LINE]} …"
    console.print(f"error: {line}", style="red", soft_wrap=True)
    return status


def application(name: str) -> Any:
    """Imports one command and returns its command line, of click's class ``Command``."""
    module = importlib.import_module(f"kvbench.commands.{name.replace('-', '_')}")
    line = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    epilog = f"{OF_EVERY_COMMAND}\n\nFor example: kvbench {EXAMPLES[name]}"
    line.command(help=COMMANDS[name], epilog=epilog)(module.command)
    return typer.main.get_command(line)


def _call(name: str, words: Sequence[str]) -> None:
    if name not in COMMANDS:
        raise KVBenchError(unknown_name("command", name, COMMANDS))
    check_interpreter()
    if name in ("site", "figures"):
        # They multiply thousands of small matrices. On busy cores numpy's threads spin for each
        # other: a product takes 10 ms, and 0.3 in one thread. Numpy reads the variable when it is
        # imported.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Without a home that can be written matplotlib takes a folder for the moment, and needs
        # three lines to say so.
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # Found by hand: both options belong to every command, and none of them declares them.
    console.quiet = "--quiet" in words
    options = [word for word in words if word not in OUTPUT_OPTIONS]
    try:
        # Not standalone, or click would print errors and end the process by itself.
        result = application(name)(
            options, prog_name=f"python -m kvbench {name}", standalone_mode=False
        )
        if isinstance(result, Result):
            result.print(name, "--json" in words)
    except (KVBenchError, DatasetError):
        raise
    except Exception as error:
        # Typer's own classes come from a copy of click, and it would draw boxes.
        if not hasattr(error, "format_message"):
            raise
        line = " ".join(error.format_message().split())
        raise KVBenchError(f"{line} (python -m kvbench {name} --help tells the options)") from error
    finally:
        console.quiet = False
    if result == InterruptedRunError.status:  # typer catches Ctrl-C and says nothing
        raise KeyboardInterrupt
