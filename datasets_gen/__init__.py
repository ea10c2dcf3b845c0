"""Synthetic routing datasets: contexts whose evidence is known, to the character."""

from datasets_gen.examples.directives import Directive, check, family_of, share_obeyed, undo
from datasets_gen.examples.errors import DatasetError, nearest, unknown_name
from datasets_gen.examples.example import Arm, Example, Question, Span, SpanKind, Split, StatedValue
from datasets_gen.examples.lexicon import kinds_of
from datasets_gen.examples.tags import TAGS, parse_tags, tags_of, with_tags
from datasets_gen.examples.task import (
    ABSTENTION,
    INSTRUCTION,
    NATIVE,
    USUAL,
    USUAL_TOKENS,
    Draft,
    Profile,
    Request,
    Task,
    at_level,
)
from datasets_gen.registry import (
    FAMILIES,
    FROM_DATA,
    KNOWN_TASKS,
    RULER,
    TASKS,
    by_name,
    get_task,
    is_file_of_questions,
)
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
    "TAGS",
    "TASKS",
    "USUAL",
    "USUAL_TOKENS",
    "Arm",
    "DatasetError",
    "Directive",
    "Draft",
    "Example",
    "Profile",
    "Question",
    "Request",
    "Span",
    "SpanKind",
    "Split",
    "StatedValue",
    "Task",
    "at_level",
    "by_name",
    "check",
    "family_of",
    "get_task",
    "is_file_of_questions",
    "kinds_of",
    "nearest",
    "parse_tags",
    "share_obeyed",
    "tags_of",
    "undo",
    "unknown_name",
    "with_tags",
]
