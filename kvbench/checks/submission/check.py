"""Checks whether a run that somebody else made is what it says it is. It writes nothing and loads no model."""

from collections.abc import Callable, Iterator
from pathlib import Path

from kvbench.checks.findings import Begin, Finding, note, silent
from kvbench.checks.submission.costs import check_costs
from kvbench.checks.submission.origin import check_code, check_model, check_status
from kvbench.checks.submission.outputs import check_outputs, check_scores
from kvbench.checks.submission.reading import Submission, read
from kvbench.checks.submission.regenerate import check_completeness, check_questions, check_tasks
from kvbench.checks.submission.totals import check_names, check_summary

CHECKS: dict[str, Callable[[Submission], Iterator[Finding]]] = {
    "run.json": check_status,
    "code": check_code,
    "model": check_model,
    "tasks": check_tasks,
    "completeness": check_completeness,
    "questions": check_questions,
    "scores": check_scores,
    "outputs": check_outputs,
    "costs": check_costs,
}
OF_WHOLE_FILES: dict[str, Callable[[Submission], Iterator[Finding]]] = {
    "names": check_names,
    "summary": check_summary,
}
COUNT = 1 + len(CHECKS) + len(OF_WHOLE_FILES)  # the files are read first


def examine(folder: Path, begin: Begin = silent) -> Iterator[Finding]:
    """Yields one finding after the other; :class:`KVBenchError` where there is no run to be examined."""
    begin("files")
    submission, files = read(folder)
    yield files
    for name, check in (CHECKS | OF_WHOLE_FILES if files.outcome == "ok" else CHECKS).items():
        begin(name)
        yield from check(submission)
    yield note("outputs", "no answer was generated anew: whoever wrote other outputs, and scored those, is not found")
