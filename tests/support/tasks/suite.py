"""What the tests of all tasks share: examples, what their spans say, and who solves them."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from datasets_gen import Example, Question, SpanKind, Split, Task
from datasets_gen.examples.lexicon import full_names
from tests.support.tasks.solvers import (
    arithmetic,
    coreference,
    instructions,
    knowledge,
    multi_presence,
    relations,
)
from tests.support.tasks.solvers.text import NAME, sentences

OFFICIAL_ROWS = Path(__file__).parents[4] / "shared" / "data" / "sys_ifeval.jsonl"
needs_rows = pytest.mark.skipif(not OFFICIAL_ROWS.is_file(), reason=f"there is no {OFFICIAL_ROWS}")
EVIDENCE: tuple[SpanKind, ...] = ("fact", "bridge", "directive")  # whole sentences
SPLITS: tuple[Split, ...] = ("train", "test")
# Every answer that a context gives to a question, by task.
SOLVERS: Mapping[str, Callable[[str, str], set[str]]] = {
    "base": relations.solve,
    "knowledge": knowledge.solve,
    "multi_presence": multi_presence.solve,
    "multi_entity": relations.solve,
    "coreference": coreference.solve,
    "hops": relations.solve,
    "long_context": relations.solve,
    "arithmetic": arithmetic.solve,
    "instructions": instructions.solve,
}
# The tasks that no solver reads, and why; each has tests of its own.
WITHOUT_SOLVER: Mapping[str, str] = {
    "prose": "asks nothing: its continuation repeats sentences of the context, which its own test compares",
    "gsm8k": "its questions and answers are rows of others",
    "ifeval": "its directives are rows of others, and checkers judge them",
}


_DRAWN: dict[int, Task] = {}  # kept, so that no other task gets the number of one


@cache
def _drawn(
    number: int, count: int, split: Split, level: int | None, held_out: bool, questions: int | None
) -> tuple[Example, ...]:
    return tuple(
        _DRAWN[number].example(3, index, split, level, questions, held_out)
        for index in range(count)
    )


def some(
    task: Task,
    count: int = 25,
    split: Split = "test",
    level: int | None = None,
    held_out: bool = False,
    questions: int | None = None,
) -> tuple[Example, ...]:
    """Examples of a task, drawn once for all tests."""
    _DRAWN[id(task)] = task
    return _drawn(id(task), count, split, level, held_out, questions)


def every_way(task: Task, count: int = 10, level: int | None = None) -> tuple[Example, ...]:
    """Examples of both splits, in both wordings."""
    return tuple(
        example
        for split in SPLITS
        for held_out in (False, True)
        for example in some(task, count, split, level, held_out)
    )


def asked(examples: Iterable[Example]) -> list[tuple[Example, Question]]:
    return [(example, question) for example in examples for question in example.questions]


def texts(example: Example, question: Question, *kinds: SpanKind) -> list[str]:
    """What the context says where the question has a span of these kinds, in the order of the
    context."""
    places = sorted((span.start, span.end) for span in question.spans if span.kind in kinds)
    return [example.context[start:end] for start, end in places]


def parts(example: Example, kind: SpanKind) -> list[str]:
    """What the context says where it has a span of this kind itself."""
    return [example.context[span.start : span.end] for span in example.spans if span.kind == kind]


def facts_in(example: Example) -> set[tuple[str, str, str]]:
    """(relation, subject, value) of all that a context states of people, in the tasks that state
    relations."""
    if example.task == "instructions":
        return set(instructions.read(example.context).statements)
    if example.task == "coreference":
        told = coreference.read(example.context)
        return {(said.relation, said.subject or "", said.value) for said in told}
    return {(said.relation, said.subject, said.value) for said in relations.read(example.context)}


def stated_in(example: Example) -> set[str]:
    """The names and values that a context states."""
    if example.task == "knowledge":
        return {word for _, *words in knowledge.read(example.context) for word in words}
    if example.task == "multi_presence":
        return {
            word for _, words in multi_presence.read(example.context) for word in words.values()
        }
    if example.task == "arithmetic":
        told = map(arithmetic.event, sentences(example.context))
        return {one.words["subject"] for one in told if one.kind == "start"} | {
            *re.findall(r"\d+", example.context)
        }
    return {name for _, subject, value in facts_in(example) for name in (subject, value)}


def right(question: Question) -> set[str]:
    """What a solver finds: all golds, the one answer under directives or to an attack, or
    nothing."""
    if question.directives or question.protected:
        return {question.perfect_output}
    return set(question.golds) if question.answerable else set()


def evidence(example: Example, question: Question) -> list[str]:
    """The sentences that decide what is to be written, in the order of the context."""
    needed = texts(example, question, *EVIDENCE)
    return [sentence for sentence in sentences(example.context) if sentence in needed]


def count_words_and_signs(text: str) -> int:
    """Counts tokens where no tokenizer is needed: each word, and each sign beside words."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def without(sentence: str, among: Iterable[str]) -> str:
    return " ".join(other for other in among if other != sentence)


@cache
def known_names() -> frozenset[str]:
    return frozenset(f"{given} {family}" for split in SPLITS for given, family in full_names(split))


def people_in(example: Example) -> set[str]:
    """Full names of the lexicon; an event or an organisation is written with two capitals as
    well."""
    text = " | ".join([example.context, *(question.text for question in example.questions)])
    return set(re.findall(rf"(?=\b({NAME})\b)", text)) & known_names()
