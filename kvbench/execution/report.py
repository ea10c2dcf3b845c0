"""Reports at the end of a run what makes it fail: two names for one method, and cells that
failed."""

import shlex
from collections.abc import Mapping, Sequence

from pandas import DataFrame

from kvbench.experiments.catalogue import is_built_in
from kvbench.handed.scope import find_handed_policy
from kvbench.store.store import Store
from kvbench.system.files import working_in
from leaderboards.aggregate.audit import audit, write_lines
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from policies import FULL, LazyModule, Policy
from policies.treatments.deployed import name_with_one_head, with_one_head

shapes = LazyModule("kvbench.models.pretrained")  # which needs torch, and scoring again does not

DOCTOR = "python -m kvbench doctor {} examines it"
LEAVE_OUT = (
    "leave it out, or give it what the reason asks for, such as other levels or longer contexts"
)
NAMED = 3  # pairs of policies of a message
AGAIN = "the same run again adds what is missing, and tries again what failed"


def collect_warnings(
    store: Store, records: DataFrame, policies: Sequence[Policy]
) -> tuple[list[str], str]:
    """Warns of every policy that changes nothing. Two names for one method fail the run, which the
    second text says; it is empty where there are none."""
    declared: Mapping[str, Sequence[str]] = {policy.name: policy.same_as for policy in policies}
    warnings: list[str] = []
    shape = None
    if declared.keys() - {FULL}:  # the full cache alone is like nothing else
        shape = shapes.read_cache_shape(store.identity.model)
    if shape is not None and shape.kv_heads == 1:
        why = f"{store.identity.model} has one key head, and nothing is shared out among heads"
        for name in declared:
            alike = name_with_one_head(name)
            if alike != name and alike in declared:
                warnings.append(f"warning: {name} keeps what {alike} keeps: {why}")
        declared = with_one_head(declared)
    identical, unchanged = audit(records, declared)
    warnings += [f"warning: {line}" for line in write_lines(unchanged)]
    if not identical:
        return warnings, ""
    reason = "; ".join(identical[:NAMED])
    if len(identical) > NAMED:
        reason += f"; and {len(identical) - NAMED} more"
    with working_in(store.folder):
        store.fail(reason)
    advice = "one of them is not what it is called; declare it (same_as) if that is meant"
    return warnings, f"{reason}: {advice}"


def fails_always(records: DataFrame, policy: str) -> str:
    """Returns why a policy has no answer at all; empty if it has one."""
    of_policy = records[records["policy"] == policy]
    failed = of_policy[of_policy["status"] != "ok"]
    if len(failed) == len(of_policy) > 0:
        return str(failed["reason"].iloc[0])
    return ""


def _to_examine(policy: str, press: str) -> str:
    """Says how a press of a user is examined. ``press``: as the command line names it."""
    if find_handed_policy(policy) is not None:
        return f"kvbench.doctor({policy}, model=...) examines it"
    return DOCTOR.format(press)


def broken(policy: str, reason: str, press: str) -> str:
    """Says what to do with a press that always fails: running it again will not help."""
    cause = reason.removeprefix(f"{policy} ")
    if is_built_in(policy):
        advice = LEAVE_OUT
    else:
        advice = _to_examine(policy, shlex.quote(press))
    fault = f"{policy} {cause}; no answer of it is there, so that nothing is compared"
    return f"{fault}: {advice}"


def describe_failures(rows: Sequence[SummaryRow]) -> str:
    """Names the policies that failed somewhere, which fails a command: in a table they are easily
    overlooked."""
    failed: dict[str, str | None] = {}
    for row in rows:
        # A mean over tasks is blank also where a policy covers some of them.
        if row.task != ALL_TASKS and not row.complete:
            failed.setdefault(row.policy, row.reason)
    if not failed:
        return ""
    if FULL in failed:  # the reason of the model comes before those of presses
        failed = {FULL: failed[FULL]} | failed
    (policy, reason), *more = failed.items()
    others = ""
    if more:
        others = f" (also failed: {', '.join(name for name, _ in more)})"
    is_sound = any(row.complete for row in rows)
    if is_sound:
        which = "some cells failed, all others are complete"
    else:
        which = "all cells failed"
    return f"{which}: {policy}: {reason}{others}; {what_to_do(rows)}"


def what_to_do(rows: Sequence[SummaryRow]) -> str:
    """Says what to do where cells are not complete: running a policy again that has none will not
    help."""
    rows_of_tasks = [row for row in rows if row.task != ALL_TASKS]
    complete = {row.policy for row in rows_of_tasks if row.complete}
    if FULL not in complete:
        return "with the full cache no press acts: the model is the cause"
    policies = dict.fromkeys(row.policy for row in rows_of_tasks)
    failed = [policy for policy in policies if policy not in complete]
    if not failed:
        return AGAIN
    if all(map(is_built_in, failed)):
        advice = LEAVE_OUT
    else:
        advice = _to_examine(failed[0], "FILE:PRESS")
    return f"{', '.join(failed)} failed everywhere: {advice}"
