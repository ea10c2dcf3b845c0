"""Commands that run no model do not wait for torch, and both ways to call kvbench are the same."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kvbench.cli.program import COMMANDS
from tests.support.records.small_store import small_store

HEAVY = ("torch", "transformers", "kvpress")
OF_HUB = ("httpx",)  # a tenth of a second
# Most of a second together: the pages of a run need none.
SLOW = ("matplotlib", "statsmodels", "seaborn")
RUN = "runs/small"
COMMAND_LINES = [
    *(["ls", kind] for kind in ("tasks", "policies", "metrics", "models", "suites")),
    *([command, "--help"] for command in COMMANDS),
    ["show", "base"],
    ["export", "--task", "base", "--limit", "1"],
    ["score", RUN],
    ["site", RUN],
    ["show", RUN, "--policy", "snapkv", "--ratio", "0.5"],
    [
        "figures",
        RUN,
        "--formats",
        "svg",
        "--only",
        "f1",
    ],  # the last, and the only one that seaborn is for
]
# Options that make no sense, in commands that would run a model.
MISTYPED = [
    ["rnu"],
    *(
        [command, *press, *words]
        for command, press in {"run": [], "compare": ["snapkv"], "plan": []}.items()
        for words in (
            ["--no-such"],
            ["--tasks", "typo"],
            ["--ratios", "x"],
            ["--model", "referense"],
            ["--limit", "0"],
        )
    ),
    *([command, "--policies", "typo"] for command in ("run", "bench", "plan")),
    *([command, "typo"] for command in ("compare", "doctor", "ls")),
    ["run", "--suite", "typo"],
    ["claims", "--only", "typo"],
    ["doctor", "int4"],
    ["doctor", "--model", "referense"],
    ["doctor", "--limit", "0"],
    ["doctor", "knorm", "--limit", "2"],
    ["run", "--device", "typo"],
    ["compare", "snapkv", "--against", "typo"],
    ["compare", "zeros"],
    ["compare", "zeros", "--against", "snapkv,int4"],
    ["bench", "--ratios", "x"],
    ["plan", "--machine", "typo"],
]
IN_ONE_PROCESS = f"""
import sys
from kvbench.cli.program import main
for words in {MISTYPED}:
    assert main(words) == 1, words
    loaded = [name for name in {(*HEAVY, *OF_HUB)} if name in sys.modules]
    assert not loaded, (words, loaded)
for words in {COMMAND_LINES}:
    assert main(words) == 0, words
    loaded = [name for name in {HEAVY} if name in sys.modules]
    assert not loaded, (words, loaded)
    assert words == {COMMAND_LINES[-1]} or "seaborn" not in sys.modules, words
assert "seaborn" in sys.modules
print("none of them")
"""
HANDLER = """
import runpy, signal, pkgutil
import kvbench.cli.program

def main():
    print(signal.getsignal(signal.SIGTERM) is signal.default_int_handler)
    return 3

kvbench.cli.program.main = main
"""
CALLS = {
    "python -m kvbench": "runpy.run_module('kvbench', run_name='__main__')",
    "kvbench": "pkgutil.resolve_name({entry!r})()",
}


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False
    )


def test_a_site_waits_for_no_module_of_print_or_of_rare_statistics(tmp_path: Path) -> None:
    small_store(tmp_path / RUN)
    code = f"""
import sys
from kvbench.cli.program import main
assert main(["site", {RUN!r}]) == 0
print([name for name in {SLOW} if name in sys.modules])
"""
    done = python(code, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n"), done.stdout


def test_neither_commands_without_a_model_nor_mistypes_wait_for_torch(tmp_path: Path) -> None:
    small_store(tmp_path / RUN)
    done = python(IN_ONE_PROCESS, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("none of them\n")


@pytest.mark.parametrize("call", CALLS)
def test_both_ways_to_call_kvbench_answer_an_interrupt_and_give_the_status(
    call: str, tmp_path: Path
) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    done = python(
        HANDLER + CALLS[call].format(entry=project["scripts"]["kvbench"]), folder=tmp_path
    )
    assert (done.returncode, done.stdout) == (3, "True\n"), done.stderr
