"""Is a run that somebody else made what it says it is? Nothing is written, and no model is loaded."""

from collections.abc import Iterator
from pathlib import Path

from kvbench.checks.findings import Finding, note
from kvbench.checks.submission.answers import check_completeness, check_outputs, check_questions, check_scores
from kvbench.checks.submission.costs import check_costs
from kvbench.checks.submission.origin import check_code, check_model, check_status, check_tasks
from kvbench.checks.submission.reading import read
from kvbench.checks.submission.totals import check_names, check_summary

__all__ = ["Finding", "examine"]


def examine(folder: Path) -> Iterator[Finding]:
    """One finding after the other; :class:`KVBenchError` where there is no run to be examined."""
    submission, files = read(folder)
    yield check_status(submission)
    yield files
    yield check_code(submission)
    yield check_model(submission)
    yield from check_tasks(submission)
    yield from check_completeness(submission)
    yield from check_questions(submission)
    yield from check_scores(submission)
    yield from check_outputs(submission)
    yield check_costs(submission)
    if files.outcome == "ok":
        yield check_names(submission)
        yield check_summary(submission)
    yield note("outputs", "no answer was generated anew: whoever wrote other outputs, and scored those, is not found")
