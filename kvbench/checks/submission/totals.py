"""Checks that ``summary.json`` says what the records add up to."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvbench.checks.findings import Finding, finding_of, note
from kvbench.checks.submission.reading import Submission
from kvbench.models.names import local_source
from kvbench.models.shape import has_one_key_head
from kvbench.publish.site import summary_rows
from kvbench.store.store import SUMMARY_FILE
from kvbench.system.errors import KVBenchError, first_line
from leaderboards.aggregate.audit import audit
from policies import POLICIES
from policies.treatments.deployed import simpler, with_one_head

SLACK = 1e-6  # other machines sum in another order


def check_names(submission: Submission) -> Iterator[Finding]:
    """Finds two names for one method, and so records of one policy under the name of another."""
    if not any(record.status == "ok" for record in submission.records):
        yield note("names", "no policy has answered anything")
        return
    named = {record.policy for record in submission.records}
    # Composed policies are in no registry, and to load a stranger's would run what it imports: the name tells enough.
    declared = {name: POLICIES[name].same_as if name in POLICIES else simpler(name) for name in named}
    model = submission.identity.model
    if local_source(model) and has_one_key_head(model):
        declared = with_one_head(declared)
    try:
        identical, _ = audit(submission.frame, declared)
    except KVBenchError as error:
        yield Finding("names", "wrong", str(error))
    else:
        pairs = [str(pair) for pair in identical]
        yield finding_of("names", "no two policies left the same cache everywhere", pairs)


def check_summary(submission: Submission) -> Iterator[Finding]:
    """Adds up the records again, and compares each row of the summary."""
    path = submission.store.folder / SUMMARY_FILE
    if not path.is_file():
        yield Finding("summary", "wrong", f"there is no {SUMMARY_FILE}: python -m kvbench score writes it")
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        yield Finding("summary", "wrong", f"{SUMMARY_FILE} cannot be read ({first_line(error)})")
        return
    try:
        rows = json.loads(json.dumps([row.model_dump() for row in summary_rows(submission.store, submission.frame)]))
    except KVBenchError as error:
        yield Finding("summary", "wrong", f"the records cannot be summarised ({error})")
    else:
        yield finding_of("summary", f"{len(rows)} rows, as the records come to", list(_differences(rows, stored)))


def _differences(rows: Sequence[Mapping[str, Any]], stored: Any) -> Iterator[str]:
    if not isinstance(stored, list) or len(stored) != len(rows):
        yield f"{SUMMARY_FILE} has not the {len(rows)} rows that the records come to"
        return
    for row, stored_row in zip(rows, stored, strict=True):
        where = f"{row['policy']} on {row['task']}"
        if not isinstance(stored_row, Mapping) or set(row) != set(stored_row):
            yield f"{where}: it has other columns"
        elif name := next((name for name, value in row.items() if not _alike(value, stored_row[name])), None):
            yield f"{where}: {name} is {stored_row[name]}, the records come to {row[name]}"


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=SLACK, abs_tol=SLACK)
    return bool(one == other)
