"""What other runs lose stands in one table with a comparison of stored runs."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.models.runs import CommandLine


def test_policies_of_a_run_beside_stand_against_its_own_full_cache(
    cli: CommandLine, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("now", "before"):
        shutil.copytree(toy_run / "runs" / "x", tmp_path / "runs" / name)
    sides = ("runs/now", "--against", "runs/before", "--every-task")
    assert cli("compare", *sides, "--beside", "runs/before", "--json") == 0
    tables = json.loads(cli.out)["tables"]
    beside = [row for row in tables["beside"] if row["policy"].endswith("of before")]
    assert {(row["policy"], row["other"]) for row in beside} == {
        ("knorm of before", "full of before")
    }
    first, *_ = tables["beside"]
    assert first["policy"].endswith("of now")
    assert cli("compare", *sides, "--json") == 0
    assert "beside" not in json.loads(cli.out)["tables"]


def test_a_press_that_is_run_has_nothing_beside_it(cli: CommandLine, toy_run: Path) -> None:
    folder = toy_run / "runs" / "x"
    assert cli("compare", "snapkv", "--against", folder, "--beside", folder) == 1
    assert "--beside stands beside a stored run" in cli.complaint
