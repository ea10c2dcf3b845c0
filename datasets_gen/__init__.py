"""Synthetic routing datasets: contexts whose evidence is known, to the character."""

from datasets_gen.examples.directives import Directive, check, family_of, share_obeyed, undo
from datasets_gen.examples.errors import DatasetError, nearest, unknown_name
from datasets_gen.examples.example import Arm, Example, Question, Span, SpanKind, Split, StatedValue
from datasets_gen.examples.lexicon import kinds_of
from datasets_gen.examples.tags import TAGS, parse_tags, tags_of, with_tags
from datasets_gen.examples.task import ABSTENTION, INSTRUCTION, NATIVE, USUAL_TOKENS, Profile, Request, Task
from datasets_gen.registry import FROM_DATA, TASKS, by_name, get_task, is_file_of_questions
from datasets_gen.writing.defences import REFUSAL

__all__ = [
    "ABSTENTION",
    "FROM_DATA",
    "INSTRUCTION",
    "NATIVE",
    "REFUSAL",
    "TAGS",
    "TASKS",
    "USUAL_TOKENS",
    "Arm",
    "DatasetError",
    "Directive",
    "Example",
    "Profile",
    "Question",
    "Request",
    "Span",
    "SpanKind",
    "Split",
    "StatedValue",
    "Task",
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
