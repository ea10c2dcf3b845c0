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
from kvbench.checks.findings import (
    Begin,
    Finding,
    finding_from_faults,
    other_value,
    silent,
    unchecked,
)
from kvbench.checks.handed_in import Submission, name_answer
from kvbench.checks.trusted import policies_here
from kvbench.experiments.descriptions import described_context, described_question
from kvbench.publish.site import summary_rows
from kvbench.store.merging import RunGroup
from kvbench.store.scoring import SCORES, scores_of
from kvbench.store.store import SUMMARY_FILE, Store
from kvbench.store.tables import Record, StoredAnswer
from kvbench.system.errors import KVBenchError, first_line
from policies import Point
from policies.composition import built_in

# Which follow from name and version of a task.
TASK_FIELDS = ("chance", "instruction", "begins_answers", "level")
CLOSE = 1e-4  # of what is computed from stored numbers
PlannedAnswer = tuple[str, str, Point, str]  # task, policy, level and draw, question


def _differences(place: str, stored: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """Names the first value that is not as it is made again."""
    for name, value in again.items():
        before = stored.get(name)
        if not _is_same(before, value):
            return [f"{place}: {other_value(name, before, value)}"]
    return []


def _is_same(stored: Any, again: Any) -> bool:
    if isinstance(again, list) and isinstance(stored, list):
        return len(again) == len(stored) and all(map(_is_same, stored, again))
    if isinstance(again, float) and isinstance(stored, int | float):
        return math.isclose(stored, again, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(stored == again)


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
    faults: list[str] = []
    for planned in identity.tasks:
        if task := submission.tasks.get(planned.name):
            here = {name: getattr(task, name) for name in TASK_FIELDS}
            faults += _differences(planned.name, vars(planned), here)
    sound = f"code {identity.source}, model {identity.model_fingerprint}"
    yield finding_from_faults("hashes", sound, faults)


def _check_questions(submission: Submission) -> Iterator[Finding]:
    """Compares contexts, questions and golds with those that are generated."""
    generated: dict[str, Mapping[str, Any]] = {}
    for name, examples in submission.examples.items():
        task = submission.tasks[name]
        for example in examples:
            context = described_context(task, example)
            generated[example.id] = {**context, "mode": submission.store.identity.mode}
            for question in example.questions:
                generated[question.id] = described_question(task, example, question)
    contexts: dict[str, Mapping[str, Any]] = {}
    questions: dict[str, Mapping[str, Any]] = {}
    for answer in submission.answers:
        contexts[answer.context.example_id] = vars(answer.context)
        questions[answer.question.question_id] = vars(answer.question)
    faults: list[str] = []
    for key, row in (contexts | questions).items():
        faults += _differences(key, row, generated.get(key, {}))
    sound = f"{len(generated):,} contexts and questions are as generated"
    yield finding_from_faults("questions", sound, faults)
    for planned in submission.store.identity.tasks:
        if planned.name not in submission.tasks:
            text = f"{planned.name} {planned.version} cannot be generated here"
            yield unchecked("questions", text)


def _check_completeness(submission: Submission) -> Iterator[Finding]:
    """Checks that every policy answers every question once at every level, and that there are no
    other records."""
    records = [answer.record for answer in submission.answers]
    planned = _planned_answers(submission, records)
    stored: Counter[PlannedAnswer] = Counter()
    for record in records:
        stored[record.task, record.policy, record.point, record.question_id] += 1
    run = submission.store.run
    faults: list[str] = []
    if run.status != "complete":
        faults.append(f"the run is {run.status}, not complete: {run.reason}")
    for key in sorted(planned | set(stored)):
        is_planned = key in planned
        if stored[key] == is_planned:
            continue
        state = "missing"
        if stored[key]:
            state = f"there {stored[key]} times, planned {int(is_planned)}"
        _, policy, point, question = key
        faults.append(f"{policy} at {point.where}, {question} is {state}")
    sound = f"{len(records):,} records, none missing, none twice"
    yield finding_from_faults("completeness", sound, faults)
    failed: list[Record] = []
    for record in records:
        if record.status != "ok" or record.output_text is None:
            failed.append(record)
    if failed:
        text = f"{len(failed):,} answers failed, as {name_answer(failed[0])}: {failed[0].reason}"
        yield unchecked("completeness", text)


def _planned_answers(submission: Submission, records: Sequence[Record]) -> set[PlannedAnswer]:
    """Lists the answers that the run planned."""
    questions: dict[str, set[str]] = defaultdict(set)
    for record in records:
        questions[record.task].add(record.question_id)
    # Where a task cannot be generated, what any policy answers is what all have to answer.
    for name, examples in submission.examples.items():
        questions[name] = set()
        for example in examples:
            questions[name].update(question.id for question in example.questions)
    planned: set[PlannedAnswer] = set()
    for policy in submission.store.identity.policies:
        for task, point in product(policy.tasks, policy.points):
            for question in questions[task]:
                planned.add((task, policy.name, point, question))
    return planned


def _check_scores(submission: Submission) -> Iterator[Finding]:
    """Scores the stored outputs again, and adds up ``summary.json`` again."""
    faults: list[str] = []
    for answer in submission.answers:
        # An answer that failed has no score: all of its columns are null.
        scores = dict.fromkeys(SCORES) | scores_of(answer)
        faults += _differences(name_answer(answer.record), vars(answer.record), scores)
    sound = f"{len(submission.answers):,} outputs have the stored scores"
    yield finding_from_faults("scores", sound, faults)
    if not submission.store.is_packed:  # which has none: pages make its rows
        yield from _check_summary(submission)


def _check_summary(submission: Submission) -> Iterator[Finding]:
    """Compares ``summary.json`` with the rows that the records make."""
    summary = summary_rows(submission.store.frame(), RunGroup((submission.store,)))
    # Through JSON, as the stored rows went: tuples come back as lists.
    rows = json.loads(json.dumps([row.model_dump() for row in summary]))
    stored = json.loads((submission.store.folder / SUMMARY_FILE).read_text(encoding="utf-8"))
    faults: list[str] = []
    if len(rows) != len(stored):
        faults.append(f"it has {len(stored)} rows, the records make {len(rows)}")
    has_other_intervals = False
    # Where one list is longer, the fault above says so.
    for again, row in zip(rows, stored, strict=False):
        place = f"{again['policy']} on {again['task']} in {SUMMARY_FILE}"
        measured: dict[str, Any] = {}
        for name, value in again.items():
            if submission.is_of_this_code or not _is_inferred(name):
                measured[name] = value
            elif not _is_same(row.get(name), value):
                has_other_intervals = True
        faults += _differences(place, row, measured)
    if has_other_intervals:
        text = f"the intervals of {SUMMARY_FILE} are of another version: pages make them anew"
        yield unchecked("scores", text)
    sound = f"{len(rows)} rows of {SUMMARY_FILE} are as the records make them"
    yield finding_from_faults("scores", sound, faults)


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
    faults: list[str] = []
    # Files are read one by one, so that a damaged one hides no other.
    files = store.record_files()
    for path in files:
        try:
            answers += store.read_answers(path)
        except (KVBenchError, ValidationError, pa.ArrowException, OSError) as error:
            reason = first_line(error.__cause__ or error)
            faults.append(f"{path.relative_to(folder)} cannot be read ({reason})")
    sound = f"{len(files):,} files, {len(answers):,} records"
    yield finding_from_faults("files", sound, faults)
    if store.identity.tables and not cells:
        tables = ", ".join(store.identity.tables)
        yield unchecked("files", f"the numbers of {tables} are made again with --replay")
    submission = Submission(store, answers, cells, policies, trusted)
    for name, check in CHECKS.items():
        begin(name)
        try:
            yield from check(submission)
        except KVBenchError as error:  # a judge that is not installed
            yield unchecked(name, str(error))
        except Exception as error:  # of texts and numbers that no run writes
            reason = f"{type(error).__name__}: {first_line(error)}"
            yield Finding(name, "wrong", f"it cannot be examined ({reason})")
