"""``python -m kvbench check-submission`` answers: is a run made by somebody else what it says it is?"""

from kvbench.checks.findings import faults_among, findings_of, findings_table
from kvbench.cli.parameters import Run
from kvbench.cli.result import Result
from policies import LazyModule

submission = LazyModule("kvbench.checks.submission.check")


def command(run: Run) -> Result:
    """Checks files, identity, completeness, questions, scores, outputs and costs; changes nothing."""
    findings = findings_of(submission.COUNT, lambda begin: submission.examine(run, begin))
    table = findings_table(f"{run}, examined", findings)
    if not (wrong := faults_among(findings)):
        return Result([table], verdict="sound")
    names = ", ".join(dict.fromkeys(finding.check for finding in wrong))
    fault = f"{run} does not hold what it says ({names}): do not put it on a board"
    return Result([table], verdict=f"broken: {names}", fault=fault)
