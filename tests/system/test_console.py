"""What progress looks like where no bar can be drawn, and characters that a terminal lacks."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kvbench.system.console import ProgressLines
from tests.support.wording import assert_says


def lines_of(
    capsys: pytest.CaptureFixture[str], seconds: Sequence[float], total: int, is_kept: bool = True
) -> list[str]:
    """The lines of work of which one item is done at each of these times, in seconds since its
    start."""
    times: Iterator[float] = iter([0.0, *seconds])
    with ProgressLines(is_kept, lambda: next(times)) as progress:
        bar = progress.add_task("generations", total=total)
        for number in range(len(seconds)):
            progress.update(bar, description=f"base {number}", advance=1)
    return capsys.readouterr().err.splitlines()


def test_a_log_has_a_line_behind_each_tenth_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = lines_of(capsys, [6, 12, 18, 24, 30, 36, 42, 48, 54, 60], 10)[:2]
    assert_says(first, "base 0: 1 of 10 (10%)", "0:00:06 so far", "0:00:54 left")
    assert_says(second, "base 1: 2 of 10 (20%)", "0:00:12 so far", "0:00:48 left")


def test_of_quick_work_only_the_end_is_told_and_of_a_bar_that_goes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (line,) = lines_of(capsys, [0.1, 0.2], 2)
    assert_says(line, "base 1: 2 of 2 (100%)", "0:00:00")
    assert lines_of(capsys, [0.1, 0.2], 2, is_kept=False) == []


def test_slow_work_is_told_every_half_minute_and_work_of_days_behind_each_hundredth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    by_ten_seconds = [10.0 * (number + 1) for number in range(6)]
    assert [line.split(":")[0] for line in lines_of(capsys, by_ten_seconds, 100)] == [
        "base 2",
        "base 5",
    ]
    by_minutes = [60.0 * (number + 1) for number in range(20)]
    assert len(lines_of(capsys, by_minutes, 1000)) == 2, "behind 10 and 20 of 1,000"


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        # Each is a process. ASCII lacks what any other lacks, and others have what it has not.
        ("ascii", ["ls", "policies"]),
        ("ascii", ["run", "--help"]),
        ("ascii", ["show", "mine.jsonl"]),
        ("ascii", ["show", "mine.jsonl", "--json"]),
        ("ascii", ["rün"]),
        ("latin-1", ["show", "mine.jsonl"]),
        ("cp1252", ["show", "mine.jsonl"]),
    ],
)
def test_a_terminal_that_lacks_a_character_gets_another_and_no_traceback(
    tmp_path: Path, encoding: str, words: list[str]
) -> None:
    row = {"context": "Łódź cost −5 € … 日本", "question": "Cost?", "answers": "−5"}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"}
    command = [sys.executable, "-m", "kvbench", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    said = done.stderr.decode(encoding)
    assert "Unicode" not in said
    assert "Traceback" not in said
    assert done.returncode == (1 if words == ["rün"] else 0), said
    shown = done.stdout.decode(encoding)
    if "--json" in words:
        assert json.loads(shown)["tables"]["examples"][0]["context"] == row["context"]
    elif words[0] == "show":
        assert "-5" in shown, "a loss stays one"


@pytest.mark.parametrize("switch", ["-O", "-OO"])
def test_python_without_assertions_and_docstrings_is_one_line(tmp_path: Path, switch: str) -> None:
    command = [sys.executable, switch, "-m", "kvbench"]
    done = subprocess.run(
        [*command, "plan"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: python -O and PYTHONOPTIMIZE take out assertions and docstrings")
    help_text = subprocess.run(
        [*command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert help_text.returncode == 0
