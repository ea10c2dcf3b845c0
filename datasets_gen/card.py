"""The card of an exported dataset: what it is, how it was made, and how to make it again."""

from datasets_gen.example import Split
from datasets_gen.lexicon import LEXICON_SHA256, lexicon
from datasets_gen.task import Task

CARD = """---
license: apache-2.0
language:
- en
pretty_name: kvbench {name}
task_categories:
- question-answering
size_categories:
- {size}
tags:
- kv-cache
- kvbench
- synthetic
- {name}
configs:
- config_name: default
  data_files:
  - split: {split}
    path: data/{split}.parquet
---
# kvbench {name}

{description}.

| | |
| --- | --- |
| task version | {version} |
| lexicon | {lexicon_version}, sha256 {lexicon_hash} |
| split | {split} |
| seed | {seed} |
| phrasings | {phrasings} |
| contexts | {contexts:,} |
| questions | {questions:,} |
| chance level | {chance:.1f} F1 of a guesser who does not see the context |
| licence | Apache-2.0 |

One row for each question. Spans are character ranges `[start, end)` of `context`; those of a question say where its
answer and its evidence stand, those of the context (`context_spans`) where there are distractors and instructions.
Everything is generated, names and values are invented, and the same command writes the same rows on every machine:

    python -m kvbench export --task {name} --split {split} --seed {seed} --limit {contexts} --phrasings {phrasings}
"""
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def dataset_card(task: Task, seed: int, split: Split, contexts: int, questions: int, phrasings: str) -> str:
    """The README of a dataset folder, with the header that the Hugging Face hub reads."""
    return CARD.format(
        name=task.name,
        description=task.description,
        size=next((size for most, size in SIZES if questions < most), "1M<n<10M"),
        split=split,
        version=task.full_version,
        lexicon_version=lexicon().version,
        lexicon_hash=LEXICON_SHA256,
        seed=seed,
        phrasings=phrasings,
        contexts=contexts,
        questions=questions,
        chance=task.chance,
    )
