"""Addresses of buckets and servers are refused, where Python would make a folder of such a name."""

from pathlib import Path

import pytest

from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable, make_folder
from tests.support.models.runs import CommandLine

SMALL = ["run", "--tasks", "base", "--policies", "snapkv", "--ratios", "0.5", "--limit", "1"]


@pytest.mark.parametrize(
    "words",
    [
        [*SMALL, "--out", "s3://bucket/runs"],
        [*SMALL, "--out=memory://runs"],
        [*SMALL, "--site", "gs://bucket/site"],
        [*SMALL, "--site", "file:///tmp/site"],
        [*SMALL, "--tasks", "gsm8k(data=hf://datasets/rows.jsonl)"],
        [*SMALL, "--tasks", "ruler(essays=https://example.org/essays.txt)"],
        [*SMALL, "--model", "gs://bucket/model"],
        ["run", "--tasks", "base,az://box/rows.jsonl"],
        ["run", "--tasks", "base", "--policies", "snapkv, s3://bucket/mine.py:Press"],
        ["site", "s3://bucket/runs/first"],
        ["import-kvpress", "S3://bucket/results"],
        ["import-kvpress", "s3:/bucket/results"],  # what Path makes of it
    ],
)
def test_an_address_in_place_of_a_path_is_refused_and_makes_no_folder(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli(*words) == 1
    assert "is an address of" in cli.err
    assert cli.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_a_cluster_is_none_of_a_file(cli: CommandLine) -> None:
    executor = "local(address=ray://127.0.0.1:1)"
    for words in (["--executor", executor], [f"--executor={executor}"]):
        assert cli(*SMALL, *words) == 1
        assert "local has no option address" in cli.err
    assert cli(*SMALL, "--executor", "ray(address=auto)", "s3://bucket/x") == 1
    assert "is an address of s3" in cli.err


def test_a_colon_in_a_path_or_a_plug_in_is_no_address(cli: CommandLine, tmp_path: Path) -> None:
    for word in (
        "mine.py:Press(path='s3://bucket/weights')",
        f"{tmp_path}/a:/b",
        "package.module:factory",
        "C:x",
    ):
        cli("doctor", word)
        assert "is an address" not in cli.err


@pytest.mark.parametrize("check", [check_writable, make_folder])
def test_a_folder_given_by_code_is_no_address_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: object
) -> None:
    monkeypatch.chdir(tmp_path)
    assert callable(check)
    with pytest.raises(KVBenchError, match="--out s3:/bucket/runs is an address"):
        check("--out", Path("s3://bucket/runs"))
    check("--out", tmp_path / "a:" / "b")
    assert [path.name for path in tmp_path.iterdir()] in ([], ["a:"])
