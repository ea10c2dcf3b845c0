"""A finding is the result of one check; ``doctor`` and ``check-submission`` show theirs in the same table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from kvbench.system.console import console, printable
from leaderboards.terminal.result_table import Column, ResultTable

Outcome = Literal["ok", "note", "unchecked", "wrong"]
STYLES: dict[Outcome, str] = {"ok": "green", "note": "yellow", "unchecked": "yellow", "wrong": "bold red"}
FAULTS_SHOWN = 3
SECONDS_BETWEEN_LINES = 2.0
Begin = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """The result of one check, in a line."""

    check: str
    outcome: Outcome  # a note is no fault, but something to know
    text: str


def finding_of(check: str, sound: str, faults: Sequence[str]) -> Finding:
    """Makes a finding of a list of faults: its first ones and their number, or ``sound`` if there are none."""
    if not faults:
        return Finding(check, "ok", sound)
    more = f"; and {len(faults) - FAULTS_SHOWN:,} more" if len(faults) > FAULTS_SHOWN else ""
    return Finding(check, "wrong", "; ".join(faults[:FAULTS_SHOWN]) + more)


def silent(_: str) -> None:
    """Reports no check."""


def note(check: str, text: str) -> Finding:
    return Finding(check, "note", text)


def unchecked(check: str, text: str) -> Finding:
    return Finding(check, "unchecked", text)


def findings_of(checks: int, examine: Callable[[Begin], Iterator[Finding]]) -> list[Finding]:
    """Shows which of so many checks runs, and in a terminal how much time is left, and returns all findings.
    ``examine`` reports the name of each check before it runs. Where there is no terminal, as in a file or a pipe, a
    line is printed for a check that begins some seconds after the last line."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("left"),
    )
    terminal = console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not terminal, transient=True) as progress:
        task = progress.add_task("", total=checks)
        started, last_line = 0, monotonic()

        def begin(check: str) -> None:
            nonlocal started, last_line
            progress.update(task, description=check, completed=started)
            if not terminal and monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                console.print(f"check {started + 1} of {checks}: {check}", soft_wrap=True)
                last_line = monotonic()
            started += 1

        return list(examine(begin))


def findings_table(title: str, findings: Sequence[Finding]) -> ResultTable:
    """Returns a line for each finding; texts of a run are shown as they are, never as markup."""
    columns = (
        Column("check"),
        Column("outcome", "", style=lambda outcome: STYLES[outcome]),
        Column("finding", text=printable, of_sentences=True),
    )
    return ResultTable("findings", columns, [(one.check, one.outcome, one.text) for one in findings], title)


def faults_among(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.outcome == "wrong"]
