"""A finding is the result of one check; ``doctor`` and ``check-submission`` show theirs in the same table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvbench.system.console import console, printable

Outcome = Literal["ok", "note", "wrong"]
STYLES: dict[Outcome, str] = {"ok": "green", "note": "yellow", "wrong": "bold red"}
FAULTS_SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """The result of one check, in a line."""

    check: str
    outcome: Outcome  # a note is no fault: something to know, or something that could not be checked
    text: str


def judged(check: str, sound: str, faults: Sequence[str]) -> Finding:
    """Makes a finding of a list of faults: its first ones and their number, or ``sound`` if there are none."""
    if not faults:
        return Finding(check, "ok", sound)
    more = f"; and {len(faults) - FAULTS_SHOWN:,} more" if len(faults) > FAULTS_SHOWN else ""
    return Finding(check, "wrong", "; ".join(faults[:FAULTS_SHOWN]) + more)


def note(check: str, text: str) -> Finding:
    return Finding(check, "note", text)


def show_findings(title: str, findings: Iterable[Finding]) -> list[Finding]:
    """Names each check on the console when it is done, prints the table, and returns the findings that are wrong."""
    done = []
    with console.status("examining") as status:
        for finding in findings:
            done.append(finding)
            status.update(f"examined: {finding.check}")
    Console(highlight=False).print(findings_table(title, done))
    return [finding for finding in done if finding.outcome == "wrong"]


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
