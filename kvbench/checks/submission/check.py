"""Checks whether a run that somebody else made is what it says it is. It writes nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

from kvbench.checks.findings import Begin, Finding, silent, unchecked
from kvbench.checks.submission.costs import check_costs
from kvbench.checks.submission.origin import check_code, check_model, check_status
from kvbench.checks.submission.outputs import check_outputs, check_scores
from kvbench.checks.submission.reading import Submission, read
from kvbench.checks.submission.regenerate import check_completeness, check_questions, check_tasks
from kvbench.checks.submission.replay import replay
from kvbench.checks.submission.totals import check_names, check_summary
from kvbench.system.errors import first_line

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
COUNT = 2 + len(CHECKS) + len(OF_WHOLE_FILES)  # the files are read first, and answers given again last


def examine(folder: Path, begin: Begin = silent, cells: int = 0) -> Iterator[Finding]:
    """Yields one finding after the other; :class:`KVBenchError` where there is no run to be examined. ``cells``: how
    many are answered again."""
    begin("files")
    submission, files = read(folder)
    yield files
    for name, check in (CHECKS | OF_WHOLE_FILES if files.outcome == "ok" else CHECKS).items():
        begin(name)
        try:
            yield from check(submission)
        except Exception as error:  # of numbers that no run writes, which another check names, or this one does
            yield Finding(name, "wrong", f"it cannot be examined ({type(error).__name__}: {first_line(error)})")
    begin("replay")
    if cells:
        yield from replay(submission, cells)
    else:
        yield unchecked("replay", "no answer was given again: see docs/reproduce.md for what is not found then")
