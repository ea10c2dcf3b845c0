"""Synthetic routing datasets: contexts whose evidence is known, to the character.

This is the registry of tasks too: add a task by writing its file and naming it here.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from datasets_gen.examples.directives import Directive, check, directive_family, undo
from datasets_gen.examples.errors import DatasetError, nearest, unknown_name
from datasets_gen.examples.example import Example, Question, Span, SpanKind, Split, StatedValue
from datasets_gen.examples.lexicon import value_kinds
from datasets_gen.examples.scorer import Scorer
from datasets_gen.examples.task import (
    ABSTENTION,
    INSTRUCTION,
    NATIVE,
    USUAL,
    USUAL_TOKENS,
    Draft,
    Length,
    Request,
    Task,
    at_level,
    with_questions,
)
from datasets_gen.tasks.arithmetic import ARITHMETIC
from datasets_gen.tasks.base import BASE
from datasets_gen.tasks.coreference import COREFERENCE
from datasets_gen.tasks.drawn import drawn_task
from datasets_gen.tasks.gsm8k import GSM8K
from datasets_gen.tasks.hops import HOPS
from datasets_gen.tasks.ifeval import IFEVAL
from datasets_gen.tasks.instructions import INSTRUCTIONS
from datasets_gen.tasks.knowledge import KNOWLEDGE
from datasets_gen.tasks.long_context import LONG_CONTEXT
from datasets_gen.tasks.multi_entity import MULTI_ENTITY
from datasets_gen.tasks.multi_presence import MULTI_PRESENCE
from datasets_gen.tasks.own_questions import own_questions, questions_task
from datasets_gen.tasks.prose import PROSE
from datasets_gen.tasks.ruler import niah
from datasets_gen.tasks.ruler.vt import VT
from datasets_gen.tasks.ruler.words import CWE, FWE
from datasets_gen.writing.system_prompt import REFUSAL

__all__ = [
    "ABSTENTION",
    "FAMILIES",
    "FROM_DATA",
    "INSTRUCTION",
    "KNOWN_TASKS",
    "NATIVE",
    "REFUSAL",
    "RULER",
    "TASKS",
    "USUAL",
    "USUAL_TOKENS",
    "DatasetError",
    "Directive",
    "Draft",
    "Example",
    "Length",
    "Question",
    "Request",
    "Scorer",
    "Span",
    "SpanKind",
    "Split",
    "StatedValue",
    "Task",
    "at_level",
    "by_name",
    "check",
    "directive_family",
    "drawn_task",
    "get_task",
    "is_file_of_questions",
    "nearest",
    "questions_task",
    "undo",
    "unknown_name",
    "value_kinds",
    "with_questions",
]


def by_name(tasks: Iterable[Task]) -> Mapping[str, Task]:
    """Maps names to tasks; raises :class:`DatasetError` for a name of two tasks."""
    by_names: dict[str, Task] = {}
    for task in tasks:
        if task.name in by_names:
            raise DatasetError(f"two tasks are named '{task.name}': give one of them another name")
        by_names[task.name] = task
    return by_names


def names_by_family(tasks: Iterable[Task]) -> Mapping[str, tuple[str, ...]]:
    """Lists the names of the tasks of each family; a task may have none."""
    names: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        if task.family:
            names[task.family] = (*names.get(task.family, ()), task.name)
    return names


TASKS = by_name(
    (
        BASE,
        KNOWLEDGE,
        MULTI_PRESENCE,
        MULTI_ENTITY,
        COREFERENCE,
        HOPS,
        LONG_CONTEXT,
        ARITHMETIC,
        INSTRUCTIONS,
    )
)

# Tasks whose rows come from elsewhere, or may: they take part where they are named. But for prose
# they have no contexts before they have rows.
FROM_DATA = by_name((IFEVAL, GSM8K, PROSE))

# The needles that the field knows. They take part where they or their family are named.
RULER = by_name((*niah.TASKS, VT, CWE, FWE))

KNOWN_TASKS = by_name((*TASKS.values(), *RULER.values(), *FROM_DATA.values()))

# The tasks of each family, whose name stands for all of them.
FAMILIES = names_by_family(KNOWN_TASKS.values())


def is_file_of_questions(name: str) -> bool:
    """Tells whether what stands for a task is a file of a user's own questions: no task has that
    name."""
    return name not in KNOWN_TASKS and (name.endswith(".jsonl") or Path(name).is_file())


def get_task(name: str) -> Task:
    """Finds a task, or makes that of a file; raises :class:`DatasetError` for an unknown name, or a
    wrong line."""
    if is_file_of_questions(name):
        return own_questions(Path(name), KNOWN_TASKS)
    if name not in KNOWN_TASKS:
        raise DatasetError(unknown_name("task", name, KNOWN_TASKS))
    return KNOWN_TASKS[name]
