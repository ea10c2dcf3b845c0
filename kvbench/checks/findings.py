"""A finding is the result of one check; ``doctor`` and ``check-submission`` show theirs in the same table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from kvbench.system.console import console, printable

Outcome = Literal["ok", "note", "wrong"]
STYLES: dict[Outcome, str] = {"ok": "green", "note": "yellow", "wrong": "bold red"}
FAULTS_SHOWN = 3
Begin = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """The result of one check, in a line."""

    check: str
    outcome: Outcome  # a note is no fault: something to know, or something that could not be checked
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


def show_findings(title: str, checks: int, examine: Callable[[Begin], Iterator[Finding]]) -> list[Finding]:
    """Shows in a terminal which of so many checks runs, and how much time is left; then prints the table, and returns
    the findings that are wrong. ``examine`` reports the name of each check before it runs."""
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
        started = 0

        def begin(check: str) -> None:
            nonlocal started
            progress.update(task, description=check, completed=started)
            started += 1

        findings = list(examine(begin))
    Console(highlight=False).print(findings_table(title, findings))
    return [finding for finding in findings if finding.outcome == "wrong"]


def findings_table(title: str, findings: Iterable[Finding]) -> Table:
    """A line for each finding; texts of a run are shown as they are, never as markup."""
    table = Table(title=Text(title), box=None, pad_edge=False, title_justify="left")
    for column in ("check", "", "finding"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        table.add_row(
            finding.check, Text(finding.outcome, style=STYLES[finding.outcome]), Text(printable(finding.text))
        )
    return table
