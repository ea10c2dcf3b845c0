"""Finds suites, and the tasks of a run by its options and by its suite."""

from collections.abc import Mapping
from itertools import chain

from datasets_gen import (
    FAMILIES,
    KNOWN_TASKS,
    RULER,
    TASKS,
    Task,
    by_name,
    unknown_name,
)
from kvbench.experiments.options import choose
from kvbench.handed.tasks import find_task, is_of_user
from kvbench.prompts.mode import Scope
from kvbench.studies.declaration import Suite
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError


def find_suite(name: str | None) -> Suite:
    """Finds a suite by its name; a run that names none has all registered tasks. Raises :class:`KVBenchError` for a
    suite that there is not."""
    if name is None:
        return Suite("", "", tuple(TASKS.values()))
    if name not in SUITES:
        raise KVBenchError(unknown_name("suite", name, SUITES))
    return SUITES[name]


def find_tasks(suite: str | None, names: str | None, compress: Scope | None = None) -> list[Task]:
    """Finds the tasks that are named, or else those of a suite. Raises :class:`KVBenchError` for a
    suite or a task that there is not."""
    tasks = by_name(find_suite(suite).tasks)
    # Of all tasks those without a system prompt would be refused then (check_scope).
    if suite is None and compress == "system":
        tasks = {name: task for name, task in tasks.items() if task.role == "system"}
    return _choose_tasks(names, tasks)


def _choose_tasks(names: str | None, by_default: Mapping[str, Task]) -> list[Task]:
    """Finds the tasks of a comma-separated list of registered names, families, and files with the
    user's own questions, and tasks in memory. A task that is asked by default, which a suite may ask in its own way,
    comes before the registered one."""
    files: dict[str, Task] = {}
    for text in (names or "").split(","):
        word = text.strip()
        if is_of_user(word):
            files[word] = find_task(word)
    others = {**KNOWN_TASKS, **files, **by_default}
    chosen = choose("task", names, by_default, others, FAMILIES)
    return list(by_name(chosen).values())


def asked_dtype(dtype: str, suite: str | None) -> str:
    """Returns the type of numbers that is asked for, or that of the suite where none is."""
    if dtype != "auto" or suite is None or suite not in SUITES:
        return dtype
    return SUITES[suite].dtype or dtype


def task_of_version(name: str, version: str) -> Task | None:
    """Finds the task, also of a suite, that makes the examples of this very version; None if there
    is none."""
    # Suites are imported only for what none of the registered tasks is.
    for_suites = chain.from_iterable(suite.tasks for suite in SUITES.values())
    for task in chain(TASKS.values(), RULER.values(), for_suites):
        if task.name == name and task.full_version == version:
            return task
    return None
