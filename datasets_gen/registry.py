"""The registry of tasks: add a task by writing its file and naming it here."""

from collections.abc import Iterable, Mapping

from datasets_gen.base import BASE
from datasets_gen.errors import DatasetError, unknown_name
from datasets_gen.hops import HOPS
from datasets_gen.task import Task


def by_name(tasks: Iterable[Task]) -> Mapping[str, Task]:
    """Tasks by name; a name taken twice raises."""
    named: dict[str, Task] = {}
    for task in tasks:
        if task.name in named:
            raise DatasetError(f"two tasks are named '{task.name}': give one of them another name")
        named[task.name] = task
    return named


TASKS = by_name((BASE, HOPS))


def get_task(name: str) -> Task:
    """The task of that name, or a :class:`DatasetError` that names the nearest one."""
    if name not in TASKS:
        raise DatasetError(unknown_name("task", name, TASKS))
    return TASKS[name]
