"""Checks where a run comes from: its status, code, model and tasks."""

from collections.abc import Iterator

from kvbench.checks.findings import Finding, judged, note
from kvbench.checks.submission.reading import Submission
from kvbench.models.shipped import REFERENCE_MODELS
from kvbench.store.tables import SCHEMA_VERSION


def check_status(submission: Submission) -> Finding:
    run = submission.store.run
    reason = f": {run.reason}" if run.reason else ""
    faults = [] if run.status == "complete" else [f"the run is not complete but {run.status}{reason}"]
    if submission.identity.schema_version != SCHEMA_VERSION:
        faults.append(f"its identity has schema version {submission.identity.schema_version}, not {SCHEMA_VERSION}")
    return judged("run.json", f"complete, schema {run.schema_version}", faults)


def check_code(submission: Submission) -> Finding:
    if submission.of_this_code:
        return Finding("code", "ok", f"source {submission.identity.source}, as installed here")
    version = submission.identity.kvbench_version
    return note("code", f"made by other code than is installed here (kvbench {version}, {submission.identity.source})")


def check_model(submission: Submission) -> Finding:
    """Other code may ship another model under the same name; this code does not."""
    identity = submission.identity
    if identity.model not in REFERENCE_MODELS:
        return note("model", f"{identity.model} does not ship with kvbench: its outputs are taken as they are")
    if submission.model_is_shipped:
        return Finding("model", "ok", f"{identity.model}, {identity.model_fingerprint}, as installed here")
    text = f"{identity.model} has fingerprint {identity.model_fingerprint}, which is not that of the installed one"
    return Finding("model", "wrong", text) if submission.of_this_code else note("model", text)


def check_tasks(submission: Submission) -> Iterator[Finding]:
    """Checks that each task is what its name and version say, where that version is installed."""
    faults = []
    for planned in submission.identity.tasks:
        task = submission.tasks.get(planned.name)
        if task is None:
            yield note("tasks", f"{planned.name} {planned.version} is not installed here: its questions go unchecked")
            continue
        faults += [
            f"{planned.name} has {field} '{getattr(planned, field)}', not '{getattr(task, field)}'"
            for field in ("chance", "instruction")
            if getattr(task, field) != getattr(planned, field)
        ]
    yield judged("tasks", f"{len(submission.tasks)} as installed here", faults)
