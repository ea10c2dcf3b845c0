"""Finds the tasks that are a user's own: in memory, in a file of questions, in a file of Python, or
of an installed package."""

import re
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

from datasets_gen import FAMILIES, KNOWN_TASKS, Task, get_task, is_file_of_questions
from kvbench.handed.scope import find_handed_task
from kvbench.system.errors import KVBenchError
from policies.declaration.cells import find_code
from policies.declaration.names import PolicyError
from policies.declaration.plug_in import foreign_code, load_target

GROUP = "kvbench.tasks"
PLUG_IN = re.compile(r"[^:]+:[A-Za-z_][\w.]*")  # file.py:Task, or package.module:task


def is_of_user(word: str) -> bool:
    """Tells whether a word of ``--tasks`` names a task of the user, and none that is registered."""
    if not word or word in KNOWN_TASKS or word in FAMILIES:
        return False
    if find_handed_task(word) is not None or is_file_of_questions(word):
        return True
    return is_code(word) or word in _installed()


def is_code(word: str) -> bool:
    """Tells whether a word of ``--tasks`` names Python code: it is run when the task is found."""
    return PLUG_IN.fullmatch(word) is not None


def name_code(words: Iterable[str]) -> str:
    """Returns the first of some words of ``--tasks`` that names Python code; an empty text for
    none."""
    return next((word for word in words if is_code(word)), "")


def find_task(word: str) -> Task:
    """Finds a task by a word of ``--tasks``. Raises :class:`KVBenchError` for code that brings no
    task, and :class:`DatasetError` for a name of none."""
    handed = find_handed_task(word)
    if handed is not None:
        return handed
    if word in KNOWN_TASKS or is_file_of_questions(word):
        return get_task(word)
    try:
        if is_code(word):
            return with_code(load_target(word), word)
        if entry := _installed().get(word):
            with foreign_code(f"the task {word} ({entry.value}) cannot be imported"):
                target = entry.load()
            return with_code(target, f"the entry point {word}")
    except PolicyError as error:
        raise KVBenchError(str(error)) from error
    return get_task(word)


def with_code(task: Any, place: str) -> Task:
    """Returns a task of the user whose version tells its code. Raises :class:`KVBenchError` for
    what is no task, and for the name of another."""
    if not isinstance(task, Task):
        raise KVBenchError(
            f"{place} is a {type(task).__name__} and no task: put @kvbench.task before the function "
            "that draws it"
        )
    if task.name in KNOWN_TASKS:
        raise KVBenchError(f"two tasks are named '{task.name}': rename yours")
    judges = [scorer.judge for scorer in task.scorers]
    code = find_code([task.make, *judges], task.name)
    return replace(task, variant=f"code.{code.origin[:8]}") if code.origin else task


def _installed() -> dict[str, Any]:
    """Returns the entry points of installed packages that bring tasks, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}
