"""Checks where a run comes from: its status, code and model."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import requires

from packaging.requirements import Requirement

import kvbench
from kvbench.checks.findings import Finding, finding_of, note
from kvbench.checks.submission.reading import Submission
from kvbench.experiments.catalogue import check_scope, find_policy
from kvbench.experiments.identify import arguments_at
from kvbench.models.shipped import REFERENCE_MODELS
from kvbench.store.identity import Identity, PolicyIdentity
from kvbench.store.run_file import RunFile
from kvbench.store.tables import SCHEMA_VERSION
from kvbench.system.errors import KVBenchError, first_line
from policies.composition import built_in

A_DAY = timedelta(days=1)  # by which clocks may differ


def check_status(submission: Submission) -> Iterator[Finding]:
    run = submission.store.run
    reason = f": {run.reason}" if run.reason else ""
    faults = [] if run.status == "complete" else [f"the run is not complete but {run.status}{reason}"]
    if submission.identity.schema_version != SCHEMA_VERSION:
        faults.append(f"its identity has schema version {submission.identity.schema_version}, not {SCHEMA_VERSION}")
    faults += _faults_of_times(run)
    faults += _faults_of_scope(submission)
    yield finding_of("run.json", f"complete, schema {run.schema_version}", faults)


def check_code(submission: Submission) -> Iterator[Finding]:
    identity = submission.identity
    if submission.of_this_code:
        faults = [*_faults_of_versions(identity), *(fault for one in identity.policies for fault in _faults_of(one))]
        if faults:
            yield finding_of("code", "", faults)
            return
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


def _faults_of_times(run: RunFile) -> Iterator[str]:
    """Finds a run that ended before it began, or will end."""
    try:
        created = datetime.fromisoformat(run.created)
        finished = datetime.fromisoformat(run.finished or run.created)
        late = finished > datetime.now(UTC) + A_DAY
    except (ValueError, TypeError) as error:
        yield f"its times are none ({first_line(error)})"
        return
    if finished < created or late:
        yield f"it began at {run.created} and ended at {run.finished}"


def _faults_of_scope(submission: Submission) -> Iterator[str]:
    """Finds contexts that are no system prompts in a run that compresses nothing else."""
    try:
        check_scope(list(submission.tasks.values()), submission.identity.mode, submission.identity.scope)
    except KVBenchError as error:
        yield str(error)


def _faults_of_versions(identity: Identity) -> Iterator[str]:
    if identity.kvbench_version != kvbench.__version__:
        yield f"its source is that of kvbench {kvbench.__version__}, it says {identity.kvbench_version}"
    for needed in map(Requirement, requires("kvbench") or ()):
        version = identity.packages.get(needed.name)
        if version is not None and not needed.specifier.contains(version, prereleases=True):
            yield f"it says {needed.name} {version:.40}, its source needs {needed.specifier}"


def _faults_of(stored: PolicyIdentity) -> Iterator[str]:
    """Compares a policy of the run with the one of that name here."""
    policy = built_in(stored.name)
    if policy is None:
        if not stored.origin and stored.family != "plug-in":
            yield f"{stored.name} is no policy of this code, and says of no file that it comes from"
        return
    for name in ("family", "paper", "origin"):
        if getattr(stored, name) != getattr(policy, name):
            yield f"{stored.name} has {name} '{getattr(stored, name):.60}', not '{getattr(policy, name)}'"
    expected = arguments_at(find_policy(stored.name), stored.arguments_at_tokens)
    if stored.arguments != expected:
        yield f"{stored.name} has arguments {stored.arguments}, not {expected}"
