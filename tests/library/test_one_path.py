"""A command has no second path beside its function of the library: it calls that, and nothing
else."""

import ast
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kvbench

ROOT = Path(__file__).parents[2]
COMMANDS = ("run", "compare", "doctor", "plan")
# Of a model in memory, which a command line cannot name.
OF_THE_LIBRARY = {"tokenizer"}
both = pytest.mark.parametrize("name", COMMANDS)


def command(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = import_module(f"kvbench.commands.{name}").command
    return function


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {name: parameter.default for name, parameter in parameters.items() if name != "context"}


@both
def test_command_and_function_have_the_same_options_and_defaults(name: str) -> None:
    options = defaults(getattr(kvbench, name))
    assert options.keys() - defaults(command(name)).keys() == OF_THE_LIBRARY
    for option in OF_THE_LIBRARY:
        del options[option]
    assert options == defaults(command(name))


@both
def test_a_command_calls_its_function_and_nothing_else_of_kvbench(name: str) -> None:
    tree = ast.parse((ROOT / "kvbench" / "commands" / f"{name}.py").read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module)
        assert not isinstance(node, ast.Call) or "LazyModule" not in ast.dump(node.func)
    ours = {module for module in imported if module.startswith(("kvbench", "leaderboards"))}
    cli = {
        "kvbench.cli",
        "kvbench.cli.result",
        "kvbench.system.errors",
        "kvbench.estimate.machines",
    }
    assert ours - cli == {f"kvbench.api.{name}"}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [function.name for function in functions] == ["command"]
