"""``python -m kvbench check-submission``: is a run made by somebody else what it says it is?"""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvbench.commands.parameters import Run
from kvbench.console import console, printable
from kvbench.errors import KVBenchError
from policies import LazyModule

if TYPE_CHECKING:
    from kvbench.submission import Finding

submission = LazyModule("kvbench.submission")

STYLES = {"ok": "green", "note": "yellow", "wrong": "bold red"}


def command(run: Run) -> None:
    """Checks files, identity, completeness, questions, scores, outputs and costs; changes nothing."""
    findings = []
    with console.status("examining") as status:
        for finding in submission.examine(run):
            findings.append(finding)
            status.update(f"examined: {finding.check}")
    Console(highlight=False).print(report(run, findings))
    wrong = list(dict.fromkeys(finding.check for finding in findings if finding.outcome == "wrong"))
    if wrong:
        raise KVBenchError(f"{run} does not hold what it says ({', '.join(wrong)}): do not put it on a board")


def report(run: Path, findings: "list[Finding]") -> Table:
    """A line for each finding; texts of the run are shown as they are, never as markup."""
    table = Table(title=Text(f"{run}, examined"), box=None, pad_edge=False)
    for title in ("check", "", "what was found"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        table.add_row(
            finding.check, Text(finding.outcome, style=STYLES[finding.outcome]), Text(printable(finding.text))
        )
    return table
