"""Suites: a question that has a page of its own, and the tasks and policies that answer it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datasets_gen import FROM_DATA, TASKS, Task, unknown_name
from datasets_gen.tasks.ifeval import IFEVAL, Placement
from datasets_gen.tasks.instructions import INSTRUCTIONS_IN_ARMS
from kvbench.experiments.options import choose
from kvbench.prompts.mode import Scope
from kvbench.system.errors import KVBenchError
from policies import PROTECTED


@dataclass(frozen=True)
class Suite:
    """``tasks``: those it has unless others are named; ``if_named``: those it has only then. ``policies``: names, as
    ``--policies`` takes them. ``scope``: what is compressed. ``defence``: where it stands in prompts from elsewhere."""

    name: str
    description: str
    tasks: tuple[Task, ...]
    if_named: tuple[Task, ...]
    policies: tuple[str, ...]
    scope: Scope
    defence: Placement


SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            name="instructions",
            description="What of a system prompt is obeyed, what leaks, and what protects (arXiv 2510.00231)",
            tasks=(INSTRUCTIONS_IN_ARMS,),
            if_named=(IFEVAL,),
            policies=tuple(plain.name + way for way in ("", "+whitelist", "+fair") for plain in PROTECTED),
            scope="system",
            defence="both",
        ),
    )
}


@dataclass(frozen=True)
class Wanted:
    """The coverage of a run. ``policies``: as ``--policies`` takes them. ``defence``: unless another is given."""

    tasks: Sequence[Task]
    policies: str | None
    scope: Scope
    defence: Placement = "none"


def wanted(suite: str | None, tasks: str | None, policies: str | None, compress: Scope | None) -> Wanted:
    """Combines ``--suite``, ``--tasks``, ``--policies`` and ``--compress``; a suite brings its tasks, and
    whatever else is not named."""
    if suite is None:
        scope = compress or "context"
        known = {name: task for name, task in TASKS.items() if scope == "context" or task.role == "system"}
        return Wanted(choose("task", tasks, TASKS if tasks else known, FROM_DATA), policies, scope)
    if suite not in SUITES:
        raise KVBenchError(unknown_name("suite", suite, SUITES))
    found = SUITES[suite]
    own, if_named = ({task.name: task for task in part} for part in (found.tasks, found.if_named))
    try:
        chosen = choose("task", tasks, own, if_named)
    except KVBenchError as error:
        raise KVBenchError(f"--suite {suite}: {error}") from error
    return Wanted(chosen, policies or ",".join(found.policies), compress or found.scope, found.defence)


def installed(name: str, version: str) -> Task | None:
    """The task of that name if it makes the examples of that very version, those of the suites among them."""
    tasks = (*TASKS.values(), *(task for suite in SUITES.values() for task in suite.tasks))
    return next((task for task in tasks if (task.name, task.full_version) == (name, version)), None)
