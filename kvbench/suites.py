"""Suites: a question that has a page of its own, and the tasks and policies that answer it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datasets_gen import FROM_DATA, TASKS, Task, unknown_name
from datasets_gen.instructions import INSTRUCTIONS_IN_ARMS
from kvbench.errors import KVBenchError
from kvbench.options import choose
from kvbench.setting import Scope
from policies import PROTECTED


@dataclass(frozen=True)
class Suite:
    """``policies``: names, as ``--policies`` takes them. ``scope``: what is compressed."""

    name: str
    description: str
    tasks: tuple[Task, ...]
    policies: tuple[str, ...]
    scope: Scope


SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            name="instructions",
            description="What of a system prompt is obeyed, what leaks, and what protects (arXiv 2510.00231)",
            tasks=(INSTRUCTIONS_IN_ARMS,),
            policies=tuple(name + way for way in ("", "+whitelist", "+fair") for name in PROTECTED),
            scope="system",
        ),
    )
}


@dataclass(frozen=True)
class Wanted:
    """What a run is to cover. ``policies``: as ``--policies`` takes them."""

    tasks: Sequence[Task]
    policies: str | None
    scope: Scope


def wanted(suite: str | None, tasks: str | None, policies: str | None, compress: Scope | None) -> Wanted:
    """What ``--suite``, ``--tasks``, ``--policies`` and ``--compress`` ask for together; a suite brings its tasks, and
    whatever else is not named."""
    if suite is None:
        scope = compress or "context"
        known = {name: task for name, task in TASKS.items() if scope == "context" or task.role == "system"}
        return Wanted(choose("task", tasks, TASKS if tasks else known, FROM_DATA), policies, scope)
    if suite not in SUITES:
        raise KVBenchError(unknown_name("suite", suite, SUITES))
    if tasks is not None:
        raise KVBenchError(f"--suite {suite} brings its tasks: leave --tasks out, or --suite")
    found = SUITES[suite]
    return Wanted(found.tasks, policies or ",".join(found.policies), compress or found.scope)


def installed(name: str, version: str) -> Task | None:
    """The task of that name if it makes the examples of that very version, those of the suites among them."""
    tasks = (*TASKS.values(), *(task for suite in SUITES.values() for task in suite.tasks))
    return next((task for task in tasks if (task.name, task.full_version) == (name, version)), None)
