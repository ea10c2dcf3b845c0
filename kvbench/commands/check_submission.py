"""``python -m kvbench check-submission``: is a run made by somebody else what it says it is?"""

from kvbench.checks.findings import show_findings
from kvbench.cli.parameters import Run
from kvbench.system.errors import KVBenchError
from policies import LazyModule

submission = LazyModule("kvbench.checks.submission.check")


def command(run: Run) -> None:
    """Checks files, identity, completeness, questions, scores, outputs and costs; changes nothing."""
    wrong = show_findings(f"{run}, examined", submission.COUNT, lambda begin: submission.examine(run, begin))
    if wrong:
        names = ", ".join(dict.fromkeys(finding.check for finding in wrong))
        raise KVBenchError(f"{run} does not hold what it says ({names}): do not put it on a board")
