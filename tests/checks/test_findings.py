"""Checks that take long show which of them runs, and only where somebody looks."""

from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from kvbench.checks import findings
from kvbench.checks.findings import Begin, Finding, faults_among, findings_of, findings_table


def examine(begin: Begin) -> Iterator[Finding]:
    for number, outcome in enumerate(("ok", "wrong"), 1):
        begin(f"check {number}")
        yield Finding(f"check {number}", "ok" if outcome == "ok" else "wrong", "text")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_which_check_runs_and_how_far_it_is(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = StringIO()
    monkeypatch.setattr(findings, "console", Console(file=output, force_terminal=terminal, width=100))
    found = findings_of(2, examine)
    assert faults_among(found) == [Finding("check 2", "wrong", "text")]
    assert ("check 2" in output.getvalue()) == terminal
    assert ("1/2" in output.getvalue()) == terminal
    Console().print(findings_table("title", found))
    assert "check 1  ok     text" in capsys.readouterr().out


def test_without_a_terminal_a_line_tells_of_checks_that_begin_long_after_the_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output, times = StringIO(), iter([0.0, 0.1, 5.0, 5.0])
    monkeypatch.setattr(findings, "console", Console(file=output, force_terminal=False, width=100))
    monkeypatch.setattr(findings, "monotonic", lambda: next(times))
    findings_of(2, examine)
    assert output.getvalue().strip() == "check 2 of 2: check 2"
