"""Reports at the end of a run what makes it fail: two names for one method, and cells that failed."""

from collections.abc import Sequence

from pandas import DataFrame

from kvbench.store.store import Store
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.audit import audit
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from policies import Policy


def report_identities(store: Store, records: DataFrame, policies: Sequence[Policy]) -> None:
    """Warns of every policy that changes nothing, and fails the run for two names of one method."""
    declared = {policy.name: policy.same_as for policy in policies}
    identical, unchanged = audit(records, declared)
    for flagged in unchanged:
        console.print(f"warning: {flagged}", style="yellow", soft_wrap=True, markup=False)
    if identical:
        reason = "; ".join(map(str, identical[:3])) + (f"; and {len(identical) - 3} more" if len(identical) > 3 else "")
        store.fail(reason)
        raise KVBenchError(f"{reason}: one of them is not what it is called; declare it (same_as) if that is meant")


def report_failures(rows: Sequence[SummaryRow]) -> None:
    """Raises an error that names the policies that failed somewhere: in a table they are easily overlooked."""
    failed: dict[str, str | None] = {}
    for row in rows:
        if (
            row.task != ALL_TASKS and not row.complete
        ):  # a mean over tasks is blank also where a policy covers only some
            failed.setdefault(row.policy, row.reason)
    if failed:
        (policy, reason), *more = failed.items()
        others = f" (also failed: {', '.join(name for name, _ in more)})" if more else ""
        raise KVBenchError(
            f"some cells failed, all others are complete: {policy}: {reason}{others}; the same command tries them again"
        )
