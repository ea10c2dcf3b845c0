"""Writes examples as a Hugging Face dataset: one row for each question."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from datasets import Dataset, Features, List, Value

from datasets_gen.examples.example import Example, Split
from datasets_gen.examples.task import Task

CARD = """---
{licence}pretty_name: kvbench {name}
configs:
- config_name: default
  data_files:
  - split: {split}
    path: data/{split}.parquet
---
# kvbench {name}

{description}. Version {version}; a guesser who does not see the context has {chance:.1f} % right.

One row for each question. Spans are character ranges `[start, end)` of `context`; those of a question say where its
answer and its evidence stand, those of the context (`context_spans`) where there are distractors and instructions. The
same command writes the same rows on every machine:

    {command}
"""
LICENCE = "license: apache-2.0\n"  # of generated contexts; rows that were given have their own


def dataset_card(task: Task, split: Split, command: str) -> str:
    """Writes the README of a dataset folder, with the header that the Hugging Face hub reads."""
    return CARD.format(
        licence=LICENCE if task.most is None else "",
        name=task.name,
        split=split,
        description=task.description,
        version=task.full_version,
        chance=task.chance,
        command=command,
    )


_TEXTS, _SPANS = (
    List(Value("string")),
    List({"kind": Value("string"), "start": Value("int32"), "end": Value("int32")}),
)
# Of columns that are no text.
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("golds", "abstentions", "bridges", "directives", "stated_values"), _TEXTS),
    **dict.fromkeys(("spans", "context_spans"), _SPANS),
    **dict.fromkeys(("every_gold", "answerable"), Value("bool")),
    "hops": Value("int32"),
}


def question_rows(task: Task, example: Example) -> Iterator[dict[str, Any]]:
    """Returns the questions of an example, each with its context. Spans are character ranges of the
    context."""
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
            "spans": [asdict(span) for span in question.spans],
            "context_spans": [asdict(span) for span in example.spans],
            "directives": [str(directive) for directive in question.directives],
            "protected": question.protected,
            # With what would be right of somebody else, and stands in the context in other words.
            "stated_values": [*example.stated_values, *question.others],
        }


def to_dataset(task: Task, examples: Sequence[Example]) -> Dataset:
    rows: list[dict[str, Any]] = []
    for example in examples:
        rows += question_rows(task, example)
    # Declared, as ``datasets`` would infer null of a column whose lists are all empty.
    types = {name: _TYPES.get(name, Value("string")) for name in rows[0]}
    return Dataset.from_list(rows, features=Features(types))
