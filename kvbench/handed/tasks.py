"""Finds the tasks that are a user's own: in memory, or in a file of questions."""

from datasets_gen import Task, get_task, is_file_of_questions
from kvbench.handed.scope import find_handed_task


def is_of_user(word: str) -> bool:
    """Tells whether a word of ``--tasks`` names a task of the user, and none that is registered."""
    return find_handed_task(word) is not None or is_file_of_questions(word)


def find_task(word: str) -> Task:
    """Finds a task by a word of ``--tasks``. Raises :class:`DatasetError` for one that there is
    not."""
    handed = find_handed_task(word)
    if handed is not None:
        return handed
    return get_task(word)
