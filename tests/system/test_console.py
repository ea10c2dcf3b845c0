"""What progress looks like where no bar can be drawn, and characters that a terminal lacks."""

from collections.abc import Iterator, Sequence

import pytest

from kvbench.system.console import ProgressLines


def lines_of(
    capsys: pytest.CaptureFixture[str], seconds: Sequence[float], total: int, is_kept: bool = True
) -> list[str]:
    """The lines of work of which one item is done at each of these times, in seconds since its start."""
    times: Iterator[float] = iter([0.0, *seconds])
    with ProgressLines(is_kept, lambda: next(times)) as progress:
        bar = progress.add_task("generations", total=total)
        for number in range(len(seconds)):
            progress.update(bar, description=f"base {number}", advance=1)
    return capsys.readouterr().err.splitlines()


def test_a_log_has_a_line_behind_each_tenth_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys, [6, 12, 18, 24, 30, 36, 42, 48, 54, 60], 10)[:2] == [
        "base 0: 1 of 10 (10%), 0:00:06 so far, about 0:00:54 left",
        "base 1: 2 of 10 (20%), 0:00:12 so far, about 0:00:48 left",
    ]


def test_of_quick_work_only_the_end_is_told_and_of_a_bar_that_goes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys, [0.1, 0.2], 2) == ["base 1: 2 of 2 (100%), in 0:00:00"]
    assert lines_of(capsys, [0.1, 0.2], 2, is_kept=False) == []


def test_slow_work_is_told_every_half_minute_and_work_of_days_behind_each_hundredth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    by_ten_seconds = [10.0 * (number + 1) for number in range(6)]
    assert [line.split(":")[0] for line in lines_of(capsys, by_ten_seconds, 100)] == ["base 2", "base 5"]
    by_minutes = [60.0 * (number + 1) for number in range(20)]
    assert len(lines_of(capsys, by_minutes, 1000)) == 2, "behind 10 and 20 of 1,000"
