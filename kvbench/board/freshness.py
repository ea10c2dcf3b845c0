"""Tells which answers of a stored run are stale: those whose task or policy has another version
here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from datasets_gen import KNOWN_TASKS
from kvbench.store.run_file import Identity, PolicyIdentity, TaskIdentity
from policies.composition import built_in


@dataclass(frozen=True)
class Stale:
    """Holds why tasks and policies of a run are stale, by name."""

    tasks: Mapping[str, str]
    policies: Mapping[str, str]

    @classmethod
    def of(cls, identity: Identity) -> Self:
        """Compares what a run asked and treated with what is registered here."""
        tasks = {task.name: _why_task(task) for task in identity.tasks}
        policies = {policy.name: _why_policy(policy) for policy in identity.policies}
        return cls(
            {name: reason for name, reason in tasks.items() if reason},
            {name: reason for name, reason in policies.items() if reason},
        )

    def why(self, policy: str, tasks: Sequence[str]) -> str:
        """Says why answers of a policy to some tasks are stale; empty where none are."""
        reasons = [self.tasks[task] for task in tasks if task in self.tasks]
        return "; ".join([*reasons, *filter(None, [self.policies.get(policy)])])


def _why_task(stored: TaskIdentity) -> str:
    registered = KNOWN_TASKS.get(stored.name)
    if registered is None:  # questions of somebody's own
        return ""
    # What a task is made of; lengths and levels stand between, and are those that were asked for.
    before, here = _ends(stored.version), _ends(registered.full_version)
    if before == here:
        return ""
    return f"{stored.name} has version {' '.join(here)} now, these are of {' '.join(before)}"


def _ends(version: str) -> tuple[str, str]:
    """Returns the version of the generator and that of its words."""
    return version.partition("+")[0], version.rpartition("+")[2]


def _why_policy(stored: PolicyIdentity) -> str:
    policy = built_in(stored.name)
    if policy is None or policy.version == stored.version:
        return ""
    return f"{stored.name} has version {policy.version} now, these are of {stored.version}"
