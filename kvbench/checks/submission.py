"""Checks a run that somebody else made: generates its data again, scores its outputs again,
compares hashes, and lets the model answer a sample again. It writes nothing."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from kvbench.checks.answered_again import check_replay
from kvbench.checks.findings import Begin, Finding, finding_from_faults, silent, unchecked
from kvbench.checks.handed_in import Submission
from kvbench.checks.trusted import policies_here
from kvbench.experiments.collect import described_context, described_question
from kvbench.publish.site import summary_rows
from kvbench.store.merging import RunGroup
from kvbench.store.scoring import SCORES, scores_of
from kvbench.store.store import SUMMARY_FILE, Store
from kvbench.store.tables import Record, StoredAnswer
from kvbench.system.errors import KVBenchError, first_line
from policies.composition import built_in

# Which follow from name and version of a task.
TASK_FIELDS = ("chance", "instruction", "begins_answers", "level")
CLOSE = 1e-4  # of what is computed from stored numbers


def _place(record: Record) -> str:
    return f"{record.policy} at {record.point.where}, {record.question_id}"


def _differences(place: str, stored: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Names the first value that is not as it is made again."""
    wrong = [name for name, value in again.items() if not _is_same(stored.get(name), value)]
    return [
        f"{place}: {name} is {stored.get(name)!r:.60}, made again it is {again[name]!r:.60}"
        for name in wrong[:1]
    ]


def _is_same(stored: Any, again: Any) -> bool:
    if isinstance(again, list) and isinstance(stored, list):
        return len(again) == len(stored) and all(map(_is_same, stored, again))
    numbers = isinstance(again, float) and isinstance(stored, int | float)
    return (
        math.isclose(stored, again, rel_tol=CLOSE, abs_tol=CLOSE)
        if numbers
        else bool(stored == again)
    )


def _check_hashes(submission: Submission) -> Iterator[Finding]:
    """Compares the hashes of code and model, and each task with the one of its name here."""
    identity = submission.store.identity
    if not submission.is_of_this_code:
        made_by = f"kvbench {identity.kvbench_version}, {identity.source}"
        yield unchecked("hashes", f"made by other code than is here: {made_by}")
    if not submission.model_is_here:
        yield unchecked(
            "hashes",
            f"no {identity.model} of fingerprint {identity.model_fingerprint} is on this machine",
        )
    faults = []
    for planned in identity.tasks:
        if task := submission.tasks.get(planned.name):
            faults += _differences(
                planned.name, vars(planned), {name: getattr(task, name) for name in TASK_FIELDS}
            )
    yield finding_from_faults(
        "hashes", f"code {identity.source}, model {identity.model_fingerprint}", faults
    )


def _check_questions(submission: Submission) -> Iterator[Finding]:
    """Compares contexts, questions and golds with those that are generated."""
    generated = dict[str, Mapping[str, Any]]()
    for name, examples in submission.examples.items():
        task = submission.tasks[name]
        for example in examples:
            context = {**described_context(task, example), "mode": submission.store.identity.mode}
            generated[example.id] = context
            for question in example.questions:
                generated[question.id] = described_question(task, example, question)
    stored = {answer.context.example_id: vars(answer.context) for answer in submission.answers}
    stored |= {answer.question.question_id: vars(answer.question) for answer in submission.answers}
    faults = list[str]()
    for key, row in stored.items():
        faults += _differences(key, row, generated.get(key, {}))
    yield finding_from_faults(
        "questions", f"{len(generated):,} contexts and questions are as generated", faults
    )
    for planned in submission.store.identity.tasks:
        if planned.name not in submission.tasks:
            text = f"{planned.name} {planned.version} cannot be generated here"
            yield unchecked("questions", text)


def _check_completeness(submission: Submission) -> Iterator[Finding]:
    """Checks that every policy answers every question once at every level, and that there are no
    other records."""
    records = [answer.record for answer in submission.answers]
    questions: dict[str, set[str]] = defaultdict(set)
    for record in records:
        questions[record.task].add(record.question_id)
    # Where a task cannot be generated, what any policy answers is what all have to answer.
    questions |= {
        name: {one.id for each in of for one in each.questions}
        for name, of in submission.examples.items()
    }
    planned = {
        (task, policy.name, point, question)
        for policy in submission.store.identity.policies
        for task, point in product(policy.tasks, policy.points)
        for question in questions[task]
    }
    stored = Counter(
        (record.task, record.policy, record.point, record.question_id) for record in records
    )
    run = submission.store.run
    faults = (
        [] if run.status == "complete" else [f"the run is {run.status}, not complete: {run.reason}"]
    )
    for key in sorted(planned | set(stored)):
        if stored[key] != (key in planned):
            number = (
                f"there {stored[key]} times, planned {int(key in planned)}"
                if stored[key]
                else "missing"
            )
            faults.append(f"{key[1]} at {key[2].where}, {key[3]} is {number}")
    yield finding_from_faults(
        "completeness", f"{len(records):,} records, none missing, none twice", faults
    )
    if failed := [
        record for record in records if record.status != "ok" or record.output_text is None
    ]:
        yield unchecked(
            "completeness",
            f"{len(failed):,} answers failed, as {_place(failed[0])}: {failed[0].reason}",
        )


def _check_scores(submission: Submission) -> Iterator[Finding]:
    """Scores the stored outputs again, and adds up ``summary.json`` again."""
    faults = []
    for answer in submission.answers:
        scores = dict.fromkeys(SCORES) | scores_of(answer)
        faults += _differences(_place(answer.record), vars(answer.record), scores)
    yield finding_from_faults(
        "scores", f"{len(submission.answers):,} outputs have the stored scores", faults
    )
    made_rows = summary_rows(submission.store.frame(), RunGroup((submission.store,)))
    rows = json.loads(json.dumps([row.model_dump() for row in made_rows]))
    stored = json.loads((submission.store.folder / SUMMARY_FILE).read_text(encoding="utf-8"))
    faults = (
        []
        if len(rows) == len(stored)
        else [f"it has {len(stored)} rows, the records make {len(rows)}"]
    )
    others = False
    for again, row in zip(rows, stored, strict=False):
        place = f"{again['policy']} on {again['task']} in {SUMMARY_FILE}"
        inferred = {name for name in again if _is_inferred(name) and not submission.is_of_this_code}
        faults += _differences(
            place, row, {name: value for name, value in again.items() if name not in inferred}
        )
        others |= any(not _is_same(row.get(name), again[name]) for name in inferred)
    if others:
        yield unchecked(
            "scores",
            f"the intervals of {SUMMARY_FILE} are of another version: pages make them anew",
        )
    yield finding_from_faults(
        "scores", f"{len(rows)} rows of {SUMMARY_FILE} are as the records make them", faults
    )


def _is_inferred(column: str) -> bool:
    """Tells whether a column of the summary is an interval or a mark, which follow from the records
    by the methods of a version and are no part of what was measured."""
    return column.endswith(("_low", "_high")) or column in ("best_in", "tied_in")


CHECKS: Mapping[str, Callable[[Submission], Iterator[Finding]]] = {
    "hashes": _check_hashes,
    "questions": _check_questions,
    "completeness": _check_completeness,
    "scores": _check_scores,
    "replay": check_replay,
}


def examine(
    folder: Path, begin: Begin = silent, cells: int = 0, trusted_code: Sequence[str] = ()
) -> Iterator[Finding]:
    """Yields one finding after the other. ``cells``: how many cells are answered again.
    ``trusted_code``: where the code of plug-ins lies that may be run for that."""
    begin("files")
    store = Store.open(folder)
    policies = policies_here(store.identity, trusted_code)
    trusted = [name for name in policies if built_in(name) is None]
    answers: list[StoredAnswer] = []
    faults = []
    for path in store.record_files():
        try:
            answers += store.read_answers(path)
        except (KVBenchError, ValidationError, pa.ArrowException, OSError) as error:
            faults.append(
                f"{path.relative_to(folder)} cannot be read "
                f"({first_line(error.__cause__ or error)})"
            )
    yield finding_from_faults(
        "files", f"{len(store.record_files()):,} files, {len(answers):,} records", faults
    )
    if store.identity.tables and not cells:
        yield unchecked(
            "files",
            f"the numbers of {', '.join(store.identity.tables)} are made again with --replay",
        )
    submission = Submission(store, answers, cells, policies, trusted)
    for name, check in CHECKS.items():
        begin(name)
        try:
            yield from check(submission)
        except KVBenchError as error:  # a judge that is not installed
            yield unchecked(name, str(error))
        except Exception as error:  # of texts and numbers that no run writes
            yield Finding(
                name,
                "wrong",
                f"it cannot be examined ({type(error).__name__}: {first_line(error)})",
            )
