"""``python -m kvbench doctor``: is this press sound?"""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvbench.catalogue import only_one
from kvbench.commands.parameters import Device, Model, Press
from kvbench.console import console
from kvbench.errors import KVBenchError
from policies import LazyModule

if TYPE_CHECKING:
    from kvbench.doctor import Finding

examination = LazyModule("kvbench.doctor")
models = LazyModule("kvbench.models")

STYLES = {"sound": "green", "note": "yellow", "fails": "bold red"}


def command(
    press: Press,
    model: Model = "reference",
    device: Device = "auto",
) -> None:
    """Runs the contract of every policy on one press and tells what was found; fails if it is broken."""
    policy = only_one(press)
    console.print(f"loading {model}", soft_wrap=True)
    loaded = models.load_model(model, device, "float32")
    if missing := models.missing_weights([policy], loaded):
        raise KVBenchError(missing[policy.name])
    findings = []
    with console.status("examining") as status:
        for finding in examination.examine(examination.admit(policy, loaded)):
            findings.append(finding)
            status.update(f"examined: {finding.question}")
    Console(highlight=False).print(report(policy.name, findings))
    broken = [finding for finding in findings if finding.outcome == "fails"]
    if broken:
        raise KVBenchError(f"{policy.name} is not sound: {broken[0].question} {broken[0].found}")


def report(name: str, findings: "list[Finding]") -> Table:
    table = Table(title=name, box=None, pad_edge=False, title_justify="left", show_header=False)
    for width in (39, 6, None):
        table.add_column(overflow="fold", width=width)
    for finding in findings:
        table.add_row(finding.question, Text(finding.outcome, STYLES[finding.outcome]), Text(finding.found))
    return table
