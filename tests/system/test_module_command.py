"""A module that is run as a command says in one line what is wrong."""

from pathlib import Path

import pytest

from kvbench.system.errors import KVBenchError
from kvbench.system.module_command import run_module


def broken(number: int) -> None:
    if number < 0:
        raise KVBenchError(f"--number {number}: it is below 0")
    Path("/nowhere/at/all").read_text()


@pytest.mark.parametrize(("number", "line"), [("-1", "error: --number -1: it is below 0"), ("1", "No such file")])
def test_an_error_is_one_line_and_a_status(
    number: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["module", "--", number])
    with pytest.raises(SystemExit) as ended:
        run_module(broken)
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert line in err
    assert len(err.splitlines()) == 1
