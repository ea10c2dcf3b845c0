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
    """Declares a suite."""

    name: str
    description: str
    tasks: tuple[Task, ...]  # that it has unless others are named
    if_named: tuple[Task, ...]  # that it has only if they are named
    policies: tuple[str, ...]  # names, as ``--policies`` takes them
    scope: Scope  # what is compressed
    defence: Placement  # where a defence stands in prompts from elsewhere
    tables: tuple[str, ...] = ()  # of studies, which its runs fill (kvbench.store.tables)


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
class Coverage:
    """The tasks, policies and tables that a run covers."""

    tasks: Sequence[Task]
    policies: str | None  # as ``--policies`` takes them
    scope: Scope
    defence: Placement = "none"  # unless another is given
    tables: tuple[str, ...] = ()


def coverage_of(suite: str | None, tasks: str | None, policies: str | None, compress: Scope | None) -> Coverage:
    """Combines ``--suite``, ``--tasks``, ``--policies`` and ``--compress``; a suite brings its tasks, and
    whatever else is not named."""
    if suite is None:
        scope = compress or "context"
        known = {name: task for name, task in TASKS.items() if scope == "context" or task.role == "system"}
        return Coverage(choose("task", tasks, TASKS if tasks else known, FROM_DATA), policies, scope)
    if suite not in SUITES:
        raise KVBenchError(unknown_name("suite", suite, SUITES))
    named = SUITES[suite]
    by_default, if_named = ({task.name: task for task in part} for part in (named.tasks, named.if_named))
    try:
        chosen = choose("task", tasks, by_default, if_named)
    except KVBenchError as error:
        raise KVBenchError(f"--suite {suite}: {error}") from error
    names = policies or ",".join(named.policies)
    return Coverage(chosen, names, compress or named.scope, named.defence, named.tables)


def task_of_version(name: str, version: str) -> Task | None:
    """Finds the task, also of a suite, that makes the examples of this very version; None if there is none."""
    tasks = (*TASKS.values(), *(task for suite in SUITES.values() for task in suite.tasks))
    return next((task for task in tasks if (task.name, task.full_version) == (name, version)), None)
