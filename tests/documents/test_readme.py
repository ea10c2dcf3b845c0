"""The README says what is so: its tables come from the registries, and its commands run."""

import re
import shlex
from pathlib import Path

import pytest

from kvbench.cli.program import main
from kvbench.documents.readme import BLOCKS, filled
from kvbench.system.errors import KVBenchError
from kvbench.system.markdown import table
from tests.support.kvpress_folders import evaluation

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^python -m kvbench .*$", TEXT, re.MULTILINE)


def test_the_tables_are_those_of_the_registries() -> None:
    assert filled(TEXT) == TEXT, "the README has drifted: make readme"


def test_a_missing_table_is_named() -> None:
    with pytest.raises(KVBenchError, match="no block 'tasks'"):
        filled(TEXT.replace("<!-- begin tasks -->", ""))
    assert set(BLOCKS) >= {"tasks", "policies", "metrics"}


def test_a_table_is_markdown() -> None:
    assert table(("a", "b"), [(1, "x")]) == "| a | b |\n| --- | --- |\n| 1 | x |"


def test_pictures_and_links_are_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", TEXT):
        assert (ROOT / target).is_file(), target


def test_every_command_of_the_readme_runs_in_the_order_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(COMMANDS) >= 6
    (press,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "loud_values.py").write_text(press)
    assert len(press.splitlines()) <= 20
    evaluation(tmp_path / "results" / "ruler", {"qa": {"string_match": 50.0}})
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        words = shlex.split(command)
        monkeypatch.setattr("sys.argv", words[2:])
        assert main(words[3:]) == 0, f"{command}\n{capsys.readouterr().err}"
    assert (tmp_path / "site/index.html").is_file()
    assert (tmp_path / "runs/first/summary.json").is_file()
    assert (tmp_path / "figures/f1-base-agnostic.png").is_file()
    assert "imported from kvpress" in (tmp_path / "site/imported.html").read_text()
    assert "snapkv+whitelist" in (tmp_path / "site/instructions.html").read_text()
    assert "against knorm" in (tmp_path / "site/compare-LoudValuesPress.html").read_text().lower()
    assert (tmp_path / "datasets/hops/data/test.parquet").is_file()
