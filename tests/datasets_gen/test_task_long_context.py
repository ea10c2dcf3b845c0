"""Task `long_context`: sound at every level, length and depth."""

import re
from typing import Any

import pytest

from datasets_gen import Length, Task
from datasets_gen.examples.example import Example
from datasets_gen.tasks.long_context import LONG_CONTEXT, SIZES
from tests.support.tasks.solvers.relations import solve
from tests.support.tasks.solvers.text import names_someone, sentences
from tests.support.tasks.suite import parts, right, some, texts

every_level = pytest.mark.parametrize("level", range(LONG_CONTEXT.top_level + 1))


def of_tokens(tokens: int, count: Any, depth: float | None = None) -> Task:
    assert LONG_CONTEXT.with_length is not None
    return LONG_CONTEXT.with_length(Length(tokens, count, depth))


def check(example: Example) -> None:
    """What the contract asks of the task, of a variant of it."""
    for question in example.questions:
        assert solve(question.text, example.context) == right(question)
        facts = texts(example, question, "fact")
        assert set(facts) <= set(sentences(example.context))
        if question.answerable:
            assert (
                solve(question.text, " ".join(facts))
                == right(question)
                == set(texts(example, question, "answer"))
            )


@every_level
def test_the_spans_of_a_context_are_its_prose_and_nothing_else(level: int) -> None:
    for example in some(LONG_CONTEXT, 20, level=level):
        prose = " ".join(parts(example, "distractor"))
        facts = [sentence for sentence in sentences(example.context) if names_someone(sentence)]
        assert sorted(sentences(prose) + facts) == sorted(sentences(example.context))
        assert not names_someone(prose)
        fewest, most = SIZES[level][2]
        assert fewest <= len(prose.split()) <= most + 15
        assert all(span.kind == "distractor" for span in example.spans)


def characters(text: str) -> int:
    """A tokenizer of two characters a token."""
    return (len(text) + 1) // 2


def word_pieces(text: str) -> int:
    """A tokenizer that parts long words and full stops, and says where the text begins."""
    return 1 + sum((len(word) + 5) // 6 for word in re.findall(r"\w+|[^\w\s]", text))


@pytest.mark.parametrize("count", [characters, word_pieces])
@pytest.mark.parametrize("tokens", [600, 4096])
@pytest.mark.parametrize("depth", [None, 0.0, 0.5, 1.0])
def test_a_context_has_the_tokens_asked_for_and_its_facts_where_asked(
    count: Any, tokens: int, depth: float | None
) -> None:
    for seed in range(3):
        example = of_tokens(tokens, count, depth).example(seed, 0)
        plain = LONG_CONTEXT.example(seed, 0)
        assert 0.98 * tokens <= count(example.context) <= tokens
        check(example)
        told, as_plain = (
            [s for s in sentences(one.context) if names_someone(s)] for one in (example, plain)
        )
        assert told == as_plain
        assert [question.text for question in example.questions] == [
            question.text for question in plain.questions
        ]
        if depth is not None:
            facts = [names_someone(sentence) for sentence in sentences(example.context)]
            first, last = facts.index(True), len(facts) - facts[::-1].index(True)
            assert all(facts[first:last])
            assert abs(first / (len(facts) - last + first) - depth) < 0.05
