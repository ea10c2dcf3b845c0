"""The options of every command, as ``docs/cli.md`` shows them."""

from typing import Any

from kvbench.cli.panels import EXAMPLES
from kvbench.cli.program import COMMANDS, application
from kvbench.system.markdown import table


def every_command() -> str:
    """Returns a section for each command: its usage, and its arguments and options with their defaults."""
    return "\n\n".join(section(name) for name in COMMANDS)


def section(name: str) -> str:
    """Returns the section of one command."""
    command = application(name)
    parameters = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    usage = " ".join(["python -m kvbench", name, *(argument.name.upper() for argument in arguments), "[OPTIONS]"])
    rows = [(_names(parameter), _in_cell(parameter.help), _default(parameter)) for parameter in parameters]
    calls = f"    {usage}\n    python -m kvbench {EXAMPLES[name]}"
    return f"## {name}\n\n{COMMANDS[name]}.\n\n{calls}\n\n" + table(("option", "what it is", "default"), rows)


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):  # what is said instead of a value that differs by machine
        return parameter.show_default
    default = parameter.default() if callable(parameter.default) else parameter.default
    return "" if default in (None, "", ()) or isinstance(default, bool) else f"`{default}`"


def _in_cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")
