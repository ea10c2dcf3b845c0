"""Checks that ``summary.json`` says what the records add up to."""

import json
import math
from collections.abc import Mapping
from typing import Any

from kvbench.checks.findings import Finding, judged, note
from kvbench.checks.submission.reading import Submission
from kvbench.publish.site import summary_rows
from kvbench.store.store import SUMMARY_FILE
from kvbench.system.errors import KVBenchError, first_line
from leaderboards.aggregate.audit import audit
from policies import POLICIES

SLACK = 1e-6  # other machines sum in another order


def check_names(submission: Submission) -> Finding:
    """Finds two names for one method, and so records of one policy under the name of another."""
    if not any(record.status == "ok" for record in submission.records):
        return note("names", "no policy has answered anything")
    declared = {name: policy.same_as for name, policy in POLICIES.items()}
    try:
        identical, _ = audit(submission.frame, declared)
    except KVBenchError as error:
        return judged("names", "", [str(error)])
    return judged("names", "no two policies left the same cache everywhere", [str(pair) for pair in identical])


def check_summary(submission: Submission) -> Finding:
    path = submission.store.folder / SUMMARY_FILE
    if not path.is_file():
        return note("summary", f"there is no {SUMMARY_FILE}: python -m kvbench score writes it")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        return judged("summary", "", [f"{SUMMARY_FILE} cannot be read ({first_line(error)})"])
    try:
        rows = json.loads(json.dumps([row.model_dump() for row in summary_rows(submission.store, submission.frame)]))
    except KVBenchError as error:
        return judged("summary", "", [f"the records cannot be summarised ({error})"])
    if not isinstance(stored, list) or len(stored) != len(rows):
        return judged("summary", "", [f"{SUMMARY_FILE} has not the {len(rows)} rows that the records come to"])
    faults = [fault for row, told in zip(rows, stored, strict=True) if (fault := _difference(row, told))]
    return judged("summary", f"{len(rows)} rows, as the records come to", faults)


def _difference(row: Mapping[str, Any], told: Any) -> str:
    where = f"{row['policy']} on {row['task']}"
    if not isinstance(told, Mapping) or set(row) != set(told):
        return f"{where}: it has other columns"
    for name, value in row.items():
        if not _alike(value, told[name]):
            return f"{where}: {name} is {told[name]}, the records come to {value}"
    return ""


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=SLACK, abs_tol=SLACK)
    return bool(one == other)
