"""Folders and files beside which kvbench is started never stand in for a package of kvbench, of
Python or of others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.models.runs import small_command

ROOT = Path(__file__).parents[2]
SHADOW = "raise ImportError('the module of the current folder was imported')\n"
COMMANDS = {
    "module": [sys.executable, "-m", "kvbench"],
    "command": [
        sys.executable,
        "-c",
        "import sys; from kvbench.cli.program import program; program()",
    ],
}
PRESS = "from kvpress import KnormPress\n\n\nclass MyPress(KnormPress):\n    pass\n"


def call_in_folder(
    command: list[str], folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    # As it is where kvbench is installed: its packages are on the path, and not in the current
    # folder.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": ""}
    return subprocess.run(
        [*command, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def shadowing_folder(tmp_path: Path) -> Path:
    """A folder of the user's with packages, bare folders and modules of names that kvbench
    imports."""
    for package in ("policies", "torch", "tests", "yaml"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(SHADOW)
    for bare in ("leaderboards", "docs", "kvbench"):
        (tmp_path / bare).mkdir()
    for module in ("datasets_gen", "random", "typer", "tokenizers", "tempfile"):
        (tmp_path / f"{module}.py").write_text(SHADOW)
    (tmp_path / "mine.py").write_text(PRESS)
    return tmp_path


def test_nothing_of_the_current_folder_is_imported_in_place_of_another_package(
    shadowing_folder: Path,
) -> None:
    done = call_in_folder(
        COMMANDS["module"], shadowing_folder, "ls", "policies", "--family", "control"
    )
    assert done.returncode == 0, done.stderr
    assert "oracle" in done.stdout


@pytest.mark.parametrize("command", ["command", pytest.param("module", marks=pytest.mark.slow)])
def test_a_press_of_the_current_folder_is_loaded_all_the_same(
    shadowing_folder: Path, toy_folder: Path, command: str
) -> None:
    if (
        command == "command"
    ):  # -c puts the current folder first, where the installed command has its own there
        for path in ("torch", "policies", "yaml"):
            (shadowing_folder / path / "__init__.py").unlink()
        for module in ("random", "typer", "tokenizers", "tempfile", "datasets_gen"):
            (shadowing_folder / f"{module}.py").unlink()
    script = small_command(
        toy_folder,
        shadowing_folder,
        *("--policies", "mine:MyPress", "--tasks", "base", "--site", shadowing_folder / "site/x"),
    )
    done = call_in_folder(COMMANDS[command], shadowing_folder, *map(str, script))
    assert done.returncode == 0, done.stderr
    assert (shadowing_folder / "runs/x/records/base").is_dir()


def test_a_package_of_that_name_which_was_imported_before_is_named_in_one_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "__init__.py").write_text("")
    done = call_in_folder([sys.executable, "-c", "import policies, kvbench"], tmp_path)
    assert "kvbench has a package policies, and " in done.stderr.splitlines()[-1]
    assert "rename that one" in done.stderr.splitlines()[-1]
