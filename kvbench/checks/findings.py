"""A finding is the result of one check; ``doctor`` and ``check-submission`` show theirs in the same
table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvbench.system.console import printable, progress_bar
from leaderboards.terminal.result_table import Column, ResultTable

Outcome = Literal["ok", "note", "unchecked", "wrong"]
STYLES: dict[Outcome, str] = {
    "ok": "green",
    "note": "yellow",
    "unchecked": "yellow",
    "wrong": "bold red",
}
FAULTS_SHOWN = 3
Begin = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """The result of one check, in a line."""

    check: str
    outcome: Outcome  # a note is no fault, but something to know
    text: str


def finding_from_faults(check: str, sound: str, faults: Sequence[str]) -> Finding:
    """Makes a finding of a list of faults: its first ones and their number, or ``sound`` if there
    are none."""
    if not faults:
        return Finding(check, "ok", sound)
    text = "; ".join(faults[:FAULTS_SHOWN])
    if len(faults) > FAULTS_SHOWN:
        text += f"; and {len(faults) - FAULTS_SHOWN:,} more"
    return Finding(check, "wrong", text)


def unchecked(check: str, text: str) -> Finding:
    return Finding(check, "unchecked", text)


def other_value(name: str, stored: Any, again: Any) -> str:
    """Says that a stored value is not the one that was made again."""
    return f"{name} is {stored!r:.60}, made again it is {again!r:.60}"


def silent(_: str) -> None:
    """Reports no check."""


def collect_findings(steps: int, examine: Callable[[Begin], Iterator[Finding]]) -> list[Finding]:
    """Returns all findings, and shows in a terminal which check runs: ``examine`` names each step
    before it begins."""
    with progress_bar() as progress:
        task = progress.add_task("", total=steps)
        return list(examine(lambda check: progress.update(task, description=check, advance=1)))


def findings_table(title: str, findings: Sequence[Finding]) -> ResultTable:
    """Returns a line for each finding; texts of a run are shown as they are, never as markup."""
    columns = (
        Column("check"),
        Column("outcome", "", style=lambda outcome: STYLES[outcome]),
        Column("finding", text=printable, of_sentences=True),
    )
    rows = [(finding.check, finding.outcome, finding.text) for finding in findings]
    return ResultTable("findings", columns, rows, title)


def faulty_checks(findings: Sequence[Finding], outcome: Outcome = "wrong") -> str:
    """Names the checks that have findings of an outcome, each once."""
    checks = [finding.check for finding in findings if finding.outcome == outcome]
    return ", ".join(dict.fromkeys(checks))


def percent_text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}"


def percent_column(name: str, title: str | None = None) -> Column:
    """Returns a column of numbers in percent, without digits behind the point."""
    return Column(name, title, percent_text, right=True)
