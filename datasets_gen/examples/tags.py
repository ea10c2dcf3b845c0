"""Tags: what a question is, in words by which questions are counted and chosen."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import get_args

from datasets_gen.examples.errors import DatasetError, unknown_name
from datasets_gen.examples.example import AnswerType, Direction, Example, Question, QuestionType

MOST_HOPS = 9
TAGS: tuple[str, ...] = (
    *get_args(Direction),
    *get_args(QuestionType),
    *get_args(AnswerType),
    *(f"{hops}-hop" for hops in range(1, MOST_HOPS + 1)),
    "answerable",
    "unanswerable",
    "directed",
    "attack",
)


def tags_of(question: Question) -> tuple[str, ...]:
    """Lists the tags of a question: its direction, type and answer type, whether it can be answered and from how many
    facts, whether directives hold for it, and whether it is after a protected text, which is no fact."""
    tags: list[str] = [question.direction, question.type, question.answer_type]
    tags += ["answerable"] if question.answerable else ["unanswerable"]
    tags += [f"{question.hops}-hop"] if question.answerable and not question.protected else []
    tags += ["directed"] if question.directives else []
    return (*tags, "attack") if question.protected else tuple(tags)


def parse_tags(text: str) -> tuple[str, ...]:
    """Reads a comma-separated list of tags; raises :class:`DatasetError` for an unknown one."""
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))
    for tag in tags:
        if tag not in TAGS:
            raise DatasetError(unknown_name("tag", tag, TAGS))
    return tags


def with_tags(example: Example, tags: Iterable[str]) -> Example:
    """Returns the example with the questions that carry all of the tags; they keep their ids."""
    required = set(tags)
    return replace(example, questions=tuple(one for one in example.questions if required <= set(tags_of(one))))


def counts_of(examples: Sequence[Example]) -> dict[str, int]:
    """Counts the questions that carry each tag, in the order of :data:`TAGS`, without unused tags."""
    counts = Counter(tag for example in examples for question in example.questions for tag in tags_of(question))
    return {tag: counts[tag] for tag in TAGS if counts[tag]}
