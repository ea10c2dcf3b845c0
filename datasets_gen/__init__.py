"""Synthetic routing datasets: contexts whose evidence is known, to the character."""

from datasets_gen.errors import DatasetError, unknown_name
from datasets_gen.example import Example, Question, Span, SpanKind, Split
from datasets_gen.registry import TASKS, get_task
from datasets_gen.task import ABSTENTION, INSTRUCTION, Task

__all__ = [
    "ABSTENTION",
    "INSTRUCTION",
    "TASKS",
    "DatasetError",
    "Example",
    "Question",
    "Span",
    "SpanKind",
    "Split",
    "Task",
    "get_task",
    "unknown_name",
]
