"""Reports at the end of a run what makes it fail: two names for one method, and cells that failed."""

from collections.abc import Sequence

from pandas import DataFrame

from kvbench.store.store import Store
from leaderboards.aggregate.audit import audit
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from policies import Policy


def warnings_of(store: Store, records: DataFrame, policies: Sequence[Policy]) -> tuple[list[str], str]:
    """Warns of every policy that changes nothing; two names for one method fail the run, which is the second text."""
    declared = {policy.name: policy.same_as for policy in policies}
    identical, unchanged = audit(records, declared)
    warnings = [f"warning: {flagged}" for flagged in unchanged]
    if not identical:
        return warnings, ""
    reason = "; ".join(map(str, identical[:3])) + (f"; and {len(identical) - 3} more" if len(identical) > 3 else "")
    store.fail(reason)
    return warnings, f"{reason}: one of them is not what it is called; declare it (same_as) if that is meant"


def failures_of(rows: Sequence[SummaryRow]) -> str:
    """Names the policies that failed somewhere, which fails a command: in a table they are easily overlooked."""
    failed: dict[str, str | None] = {}
    for row in rows:
        if row.task != ALL_TASKS and not row.complete:  # a mean over tasks is blank also where a policy covers some
            failed.setdefault(row.policy, row.reason)
    if not failed:
        return ""
    (policy, reason), *more = failed.items()
    others = f" (also failed: {', '.join(name for name, _ in more)})" if more else ""
    return f"some cells failed, all others are complete: {policy}: {reason}{others}; the same command tries them again"
