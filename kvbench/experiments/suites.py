"""What a run covers by its options and by its suite."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from datasets_gen import (
    FAMILIES,
    KNOWN_TASKS,
    RULER,
    TASKS,
    Task,
    by_name,
    get_task,
    is_file_of_questions,
    unknown_name,
)
from kvbench.experiments.options import choose
from kvbench.prompts.mode import Mode, Scope
from kvbench.studies.declaration import Suite
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError


def coverage_of(
    suite: str | None,
    tasks: str | None,
    policies: str | None,
    compress: Scope | None,
    mode: Mode = "agnostic",
) -> Suite:
    """Combines a suite with ``--tasks``, ``--policies`` and ``--compress``, which come before its
    own."""
    if suite is None:
        scope = compress or "context"
        by_default = {
            name: task
            for name, task in TASKS.items()
            if scope == "context" or task.role == "system"
        }
        return Suite("", "", _choose_tasks(tasks, by_default), policies=policies, scope=scope)
    if suite not in SUITES:
        raise KVBenchError(unknown_name("suite", suite, SUITES))
    named = SUITES[suite]
    chosen = _choose_tasks(tasks, by_name(named.tasks))
    by_mode = named.if_aware if mode == "aware" else None
    named = replace(
        named, tasks=chosen, scope=compress or named.scope, policies=by_mode or named.policies
    )
    return named if policies is None else replace(named, policies=policies, own_levels={})


def _choose_tasks(names: str | None, by_default: Mapping[str, Task]) -> list[Task]:
    """Finds the tasks of a comma-separated list of registered names, families, and files with the
    user's own questions. A task that is asked by default, which a suite may ask in its own way,
    comes before the registered one."""
    words = [word.strip() for word in (names or "").split(",")]
    files = {word: get_task(word) for word in words if is_file_of_questions(word)}
    others = {**KNOWN_TASKS, **files, **by_default}
    return list(by_name(choose("task", names, by_default, others, FAMILIES)).values())


def dtype_of(dtype: str, suite: str | None) -> str:
    """Returns the type of numbers that is asked for, or that of the suite where none is."""
    of_suite = SUITES[suite].dtype if suite is not None and suite in SUITES else None
    return of_suite if of_suite and dtype == "auto" else dtype


def task_of_version(name: str, version: str) -> Task | None:
    """Finds the task, also of a suite, that makes the examples of this very version; None if there
    is none."""
    # Suites are imported only for what none of the registered tasks is.
    of_suites = chain.from_iterable(suite.tasks for suite in SUITES.values())
    tasks = chain(TASKS.values(), RULER.values(), of_suites)
    return next((task for task in tasks if (task.name, task.full_version) == (name, version)), None)
