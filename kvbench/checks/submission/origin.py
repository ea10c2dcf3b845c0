"""Checks where a run comes from: its status, code and model."""

from collections.abc import Iterator

from kvbench.checks.findings import Finding, finding_of, note
from kvbench.checks.submission.reading import Submission
from kvbench.models.shipped import REFERENCE_MODELS
from kvbench.store.tables import SCHEMA_VERSION


def check_status(submission: Submission) -> Iterator[Finding]:
    run = submission.store.run
    reason = f": {run.reason}" if run.reason else ""
    faults = [] if run.status == "complete" else [f"the run is not complete but {run.status}{reason}"]
    if submission.identity.schema_version != SCHEMA_VERSION:
        faults.append(f"its identity has schema version {submission.identity.schema_version}, not {SCHEMA_VERSION}")
    yield finding_of("run.json", f"complete, schema {run.schema_version}", faults)


def check_code(submission: Submission) -> Iterator[Finding]:
    identity = submission.identity
    if submission.of_this_code:
        yield Finding("code", "ok", f"source {identity.source}, as installed here")
    else:
        made_by = f"kvbench {identity.kvbench_version}, {identity.source}"
        yield note("code", f"made by other code than is installed here ({made_by})")


def check_model(submission: Submission) -> Iterator[Finding]:
    """Checks that a shipped model is the one of this code: other code may ship another one under the same name."""
    identity = submission.identity
    if identity.model not in REFERENCE_MODELS:
        yield note("model", f"{identity.model} does not ship with kvbench: its outputs are taken as they are")
    elif submission.model_is_shipped:
        yield Finding("model", "ok", f"{identity.model}, {identity.model_fingerprint}, as installed here")
    else:
        text = f"{identity.model} has fingerprint {identity.model_fingerprint}, which is not that of the installed one"
        yield Finding("model", "wrong" if submission.of_this_code else "note", text)
