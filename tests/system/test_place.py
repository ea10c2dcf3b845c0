"""Folders that a user names: those that cannot be written, and URLs, are refused in one line."""

from pathlib import Path

import pytest

from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable
from tests.support.models.runs import CommandLine


def test_a_url_is_no_folder(cli: CommandLine) -> None:
    for words in (["run", "--out", "s3://bucket/runs"], ["site", "s3://bucket/runs/x"], ["score", "memory://x"]):
        assert "is a URL: give a local folder" in cli.error(*words)


def test_a_local_folder_that_takes_no_file_is_one_line_and_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/runs/deep"):
        with pytest.raises(KVBenchError, match=r"--out .* cannot be written \(.*file: it is no folder\)"):
            check_writable("--out", folder)
    check_writable("--out", tmp_path / "new/runs")
    assert not (tmp_path / "new").exists()
