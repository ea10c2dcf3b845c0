"""Writes examples as a Hugging Face dataset: one row for each question."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from datasets import Dataset, Features, List, Value

from datasets_gen.examples.example import Example, Split
from datasets_gen.examples.lexicon import LEXICON_SHA256, lexicon
from datasets_gen.examples.tags import tags_of
from datasets_gen.examples.task import Task

CARD = """---
{header}language:
- en
pretty_name: kvbench {name}
task_categories:
- question-answering
size_categories:
- {size}
tags:
- kv-cache
- kvbench
{synthetic}- {name}
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
{facts}

One row for each question. Spans are character ranges `[start, end)` of `context`; those of a question say where its
answer and its evidence stand, those of the context (`context_spans`) where there are distractors and instructions.
{origin}

{splits}"""
PART = """## Split {split}

| | |
| --- | --- |
| seed | {seed} |
| phrasings | {phrasings} |
| contexts | {contexts:,} |
| questions | {questions:,} |
| by tag | {tags} |

    python -m kvbench export --task {task} --split {split} {options}
"""
# What holds of generated contexts, and of those that were given.
GENERATED = {
    "header": "license: apache-2.0\n",
    "synthetic": "- synthetic\n",
    "facts": "| chance level of all questions | {chance:.1f} % right of a guesser who does not see the context |\n"
    "| licence | Apache-2.0 |",
    "origin": "Everything is generated, names and values are invented, and the same command writes the same rows on "
    "every machine.",
}
GIVEN = {
    "header": "",
    "synthetic": "",
    "facts": "| licence | that of the given rows; Apache-2.0 for those of IFEval |",
    "origin": "The rows were given; attacks on prompts of IFEval, and their defences, are drawn. The same command over "
    "the same\nrows writes the same on every machine.",
}
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


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
    tags: Mapping[str, int]  # questions by tag
    options: str  # of the command, behind task and split
    source: str = ""  # the file of its questions, where they are somebody's own


def dataset_card(task: Task, splits: Sequence[DatasetSplit]) -> str:
    """Writes the README of a dataset folder, with the header that the Hugging Face hub reads."""
    questions = sum(one.questions for one in splits)
    return CARD.format(
        name=task.name,
        description=task.description,
        size=next((size for most, size in SIZES if questions < most), "1M<n<10M"),
        files="\n".join(f"  - split: {one.split}\n    path: data/{one.split}.parquet" for one in splits),
        version=task.full_version,
        lexicon_version=lexicon().version,
        lexicon_hash=LEXICON_SHA256,
        **{name: text.format(chance=task.chance) for name, text in (GENERATED if task.most is None else GIVEN).items()},
        splits="\n".join(_describe(task, one) for one in splits),
    )


def _describe(task: Task, one: DatasetSplit) -> str:
    return PART.format(
        task=one.source or task.name,
        split=one.split,
        seed=one.seed,
        phrasings=one.phrasings,
        contexts=one.contexts,
        questions=one.questions,
        tags=", ".join(f"{tag} {count:,}" for tag, count in one.tags.items()),
        options=one.options,
    )


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
