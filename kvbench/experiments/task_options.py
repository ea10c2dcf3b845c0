"""Finds for each task of a run the options that stand behind its name, behind that of its family,
or behind ``all``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from datasets_gen import (
    FAMILIES,
    FROM_DATA,
    RULER,
    Task,
)
from datasets_gen.tasks.ifeval import IFEVAL
from datasets_gen.tasks.ruler import niah
from kvbench.handed.tasks import find_task, is_of_user
from kvbench.prompts.mode import PREFIX_WAYS
from kvbench.store.run_file import EVERY_TASK, TaskOptions
from kvbench.system.errors import KVBenchError

# The tasks that take an option which not all of them take.
TAKING: Mapping[str, tuple[str, ...]] = {
    "data": tuple(FROM_DATA),
    "defence": (IFEVAL.name,),
    "essays": tuple(name for name, task in RULER.items() if niah.takes_essays(task)),
}


def options_by_task(
    tasks: Sequence[Task], options_by_word: Mapping[str, TaskOptions]
) -> dict[str, TaskOptions]:
    """Returns the options of each task that has some. ``options_by_word``: by word of ``--tasks``.
    What stands behind ``all`` or a family is for those of its tasks that take it, and what stands
    behind a task itself counts before it. Raises :class:`KVBenchError` for an option that no such
    task takes."""
    by_task: dict[str, TaskOptions] = {}
    # From the widest word to the narrowest, so that what is said of a task itself comes last.
    for word in sorted(options_by_word, key=_narrowness):
        meant = _meant_tasks(word, tasks)
        for name, value in _set_options(options_by_word[word]):
            for task in _taking(name, value, meant):
                before = by_task.get(task.name, TaskOptions())
                by_task[task.name] = before.model_copy(update={name: value})
    return by_task


def _narrowness(word: str) -> int:
    if word == EVERY_TASK:
        return 0
    return 1 if word in FAMILIES else 2


def _set_options(options: TaskOptions) -> Iterator[tuple[str, Any]]:
    for name, value in options:
        if value is not None:
            yield name, value


def _meant_tasks(word: str, tasks: Sequence[Task]) -> list[Task]:
    """Lists the tasks that a word of ``--tasks`` means; none for a word that stands there no
    more."""
    if word == EVERY_TASK:
        return list(tasks)
    names = FAMILIES.get(word, (word,))
    if is_of_user(word):
        names = (find_task(word).name,)
    return [task for task in tasks if task.name in names]


def _taking(name: str, value: object, meant: Sequence[Task]) -> list[Task]:
    """Lists the tasks that take an option; raises :class:`KVBenchError` where none does, or where a
    file with the rows of one task is given to several."""
    if name == "prefix":
        begun = [task for task in meant if value in PREFIX_WAYS or task.with_prefix]
        return begun or list(meant)  # which is refused with its reason when they are asked
    taking = [task for task in meant if task.name in TAKING.get(name, (task.name,))]
    if meant and not taking:
        names = ", ".join(task.name for task in meant)
        raise KVBenchError(f"{name} is for the tasks {', '.join(TAKING[name])}, not for {names}")
    if name == "data" and len(taking) > 1:
        names = " and ".join(task.name for task in taking)
        raise KVBenchError(f"data={value} has rows of one task: give it to one of {names}")
    return taking
