"""Writes examples as a Hugging Face dataset: one row for each question."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from datasets import Dataset, Features, List, Value

from datasets_gen.examples.example import Example
from datasets_gen.examples.tags import tags_of
from datasets_gen.examples.task import Task

_SPAN = {"kind": Value("string"), "start": Value("int32"), "end": Value("int32")}
FEATURES = Features(
    {
        "question_id": Value("string"),
        "example_id": Value("string"),
        "task": Value("string"),
        "task_version": Value("string"),
        "split": Value("string"),
        "context": Value("string"),
        "question": Value("string"),
        "instruction": Value("string"),
        "role": Value("string"),
        "golds": List(Value("string")),
        "every_gold": Value("bool"),
        "answer_prefix": Value("string"),
        "target": Value("string"),
        "answer_marker": Value("string"),
        "abstentions": List(Value("string")),
        "answerable": Value("bool"),
        "direction": Value("string"),
        "answer_type": Value("string"),
        "question_type": Value("string"),
        "hops": Value("int32"),
        "bridges": List(Value("string")),
        "tags": List(Value("string")),
        "spans": List(_SPAN),
        "context_spans": List(_SPAN),
        "directives": List(Value("string")),
        "protected": Value("string"),
        "stated_values": List(Value("string")),
    }
)


def rows_of(task: Task, example: Example) -> Iterator[dict[str, Any]]:
    """Returns the questions of an example, each with its context. Spans are character ranges of the context."""
    for question in example.questions:
        yield {
            "question_id": question.id,
            "example_id": example.id,
            "task": task.name,
            "task_version": task.full_version,
            "split": example.split,
            "context": example.context,
            "question": question.text,
            "instruction": task.instruction,
            "role": task.role,
            "golds": list(question.golds),
            "every_gold": question.every_gold,
            "answer_prefix": question.answer_prefix,
            "target": question.perfect_output,
            "answer_marker": task.answer_marker,
            "abstentions": list(task.abstentions),
            "answerable": question.answerable,
            "direction": question.direction,
            "answer_type": question.answer_type,
            "question_type": question.type,
            "hops": question.hops,
            "bridges": list(question.bridges),
            "tags": list(tags_of(question)),
            "spans": [asdict(span) for span in question.spans],
            "context_spans": [asdict(span) for span in example.spans],
            "directives": [str(directive) for directive in question.directives],
            "protected": question.protected,
            "stated_values": [*example.stated_values, *question.others],
        }


def to_dataset(task: Task, examples: Sequence[Example]) -> Dataset:
    """Returns the questions of the examples as a :class:`datasets.Dataset`."""
    rows = [row for example in examples for row in rows_of(task, example)]
    return Dataset.from_list(rows, features=FEATURES)
