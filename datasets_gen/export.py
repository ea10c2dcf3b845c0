"""Writes examples as a Hugging Face dataset: one row for each question."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from datasets import Dataset, Features, List, Value

from datasets_gen.examples.example import Example, Question, Split
from datasets_gen.examples.lexicon import LEXICON_SHA256, lexicon
from datasets_gen.examples.task import Task

CARD = """---
{licence}language:
- en
pretty_name: kvbench {name}
task_categories:
- question-answering
tags:
- kv-cache
- kvbench
- {name}
configs:
- config_name: default
  data_files:
{files}
---
# kvbench {name}

{description}.

| | |
| --- | --- |
| task version | {version} |
| lexicon | {lexicon_version}, sha256 {lexicon_hash} |
| chance level | {chance:.1f} % right of a guesser who does not see the context |

One row for each question. Spans are character ranges `[start, end)` of `context`; those of a question say where its
answer and its evidence stand, those of the context (`context_spans`) where there are distractors and instructions.
{origin}

{splits}"""
PART = """## Split {split}

{contexts:,} contexts with {questions:,} questions, seed {seed}, {phrasings} phrasings:

    python -m kvbench export --task {task} --split {split} {options}
"""
# The licence in the header, and what holds of generated contexts and of those that were given.
GENERATED = (
    "license: apache-2.0\n",
    "Everything is generated, names and values are invented; the same command writes the same rows on every machine.",
)
GIVEN = (
    "",
    "The rows were given, and their licence is their own; the same command over them writes the same everywhere.",
)


@dataclass(frozen=True)
class DatasetSplit:
    """A split of the dataset."""

    task: str
    version: str
    split: Split
    seed: int
    phrasings: str
    contexts: int
    questions: int
    options: str  # of the command, behind task and split
    source: str = ""  # the file of its questions, where they are somebody's own


def dataset_card(task: Task, splits: Sequence[DatasetSplit]) -> str:
    """Writes the README of a dataset folder, with the header that the Hugging Face hub reads."""
    licence, origin = GENERATED if task.most is None else GIVEN
    return CARD.format(
        licence=licence,
        name=task.name,
        description=task.description,
        files="\n".join(f"  - split: {one.split}\n    path: data/{one.split}.parquet" for one in splits),
        version=task.full_version,
        lexicon_version=lexicon().version,
        lexicon_hash=LEXICON_SHA256,
        chance=task.chance,
        origin=origin,
        splits="\n".join(PART.format(**{**asdict(one), "task": one.source or task.name}) for one in splits),
    )


_TEXTS, _SPANS = List(Value("string")), List({"kind": Value("string"), "start": Value("int32"), "end": Value("int32")})
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("golds", "abstentions", "bridges", "tags", "directives", "stated_values"), _TEXTS),
    **dict.fromkeys(("spans", "context_spans"), _SPANS),
    **dict.fromkeys(("every_gold", "answerable"), Value("bool")),
    "hops": Value("int32"),
}  # of columns that are no text


def tags_of(question: Question) -> tuple[str, ...]:
    """Lists what a question is: direction, type and answer type, whether it can be answered and from how many facts,
    whether directives hold for it, and whether it is after a protected text, which is no fact."""
    tags: list[str] = [question.direction, question.type, question.answer_type]
    tags += ["answerable"] if question.answerable else ["unanswerable"]
    tags += [f"{question.hops}-hop"] if question.answerable and not question.protected else []
    tags += ["directed"] if question.directives else []
    return (*tags, "attack") if question.protected else tuple(tags)


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
    return Dataset.from_list(rows, features=Features({name: _TYPES.get(name, Value("string")) for name in rows[0]}))
