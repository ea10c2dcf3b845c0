"""``python -m kvbench check-submission`` answers: is a run made by somebody else what it says it
is?"""

from typing import Annotated

from typer import Option

from kvbench.checks.findings import collect_findings, faulty_checks, findings_table
from kvbench.cli.parameters import Run
from kvbench.cli.result import Result
from policies import LazyModule

submission = LazyModule("kvbench.checks.submission")


def command(
    run: Run,
    replay: Annotated[
        int,
        Option(
            min=0, help="Cells at least, of contexts drawn at random, that the model answers again."
        ),
    ] = 20,
    trust_code: Annotated[
        list[str] | None,
        Option(
            metavar="FILE",
            help="Run the press of this file, or module, too: its cells are answered first. "
            "Read it before; may be given again.",
        ),
    ] = None,
) -> Result:
    """Generates questions, scores outputs and answers some contexts again, and compares hashes;
    changes nothing."""
    steps = 1 + len(submission.CHECKS)
    trusted = trust_code or ()
    findings = collect_findings(
        steps, lambda begin: submission.examine(run, begin, replay, trusted)
    )
    table = findings_table(f"{run}, examined", findings)
    if wrong := faulty_checks(findings):
        fault = f"{run} does not hold what it says ({wrong}): do not put it on a board"
        return Result([table], verdict=f"broken: {wrong}", fault=fault)
    if left := faulty_checks(findings, "unchecked"):
        return Result([table], verdict=f"nothing wrong found, but not checked: {left}")
    # The last finding says how much was answered again.
    return Result([table], verdict=f"sound: {findings[-1].text}")
