"""The card of an exported dataset: what it is, how it was made, and how to make it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datasets_gen.examples.example import Split
from datasets_gen.examples.lexicon import LEXICON_SHA256, lexicon
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
