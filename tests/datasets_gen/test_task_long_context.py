"""Task `long_context`: sound at every level, length and depth, in both splits and both sets of phrasings."""

import random
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Example
from datasets_gen.examples.lexicon import lexicon
from datasets_gen.tasks.long_context import LONG_CONTEXT, SIZES, context_of_tokens, long_context
from datasets_gen.writing.prose import MOST_TOKENS, TEMPLATES, draw_sentences, prose_of_words
from tests.support.tasks.solvers.relations import solve
from tests.support.tasks.solvers.text import names_someone, sentences
from tests.support.tasks.suite import ANSWER_TYPES, asked, parts, right, some, texts

TOP = LONG_CONTEXT.top_level
seeds = st.integers(0, 2**32)
every_level = pytest.mark.parametrize("level", range(TOP + 1))


def check(example: Example) -> None:
    """What the contract asks of the task, of a variant of it."""
    for question in example.questions:
        assert solve(question.text, example.context) == right(question)
        facts = texts(example, question, "fact")
        assert set(facts) <= set(sentences(example.context))
        if question.answerable:
            assert solve(question.text, " ".join(facts)) == right(question) == set(texts(example, question, "answer"))


# --- the questions


@every_level
def test_everything_promised_is_asked(level: int) -> None:
    questions = [question for _, question in asked(some(LONG_CONTEXT, 150, level=level))]
    assert {question.direction for question in questions} == {"forward", "reverse"}
    assert {question.answer_type for question in questions if question.answerable} == ANSWER_TYPES
    assert {question.hops for question in questions} == {0, 1}


# --- the prose


def test_no_word_of_the_prose_could_be_an_answer() -> None:
    words = lexicon()
    kinds = "given family city job organisation_first organisation_second creature thing event_first event_second"
    lists = [getattr(words, kind) for kind in (*kinds.split(), "month", "instrument")]
    values = {word.lower() for values in lists for value in values for word in value.split()}
    prose = " ".join([*TEMPLATES, *words.place, *words.adjective]).lower()
    assert not re.search(r"\d", prose)
    assert values.isdisjoint(re.findall(r"[a-z]+", prose))
    assert len(set(TEMPLATES)) >= 40


@pytest.mark.parametrize("words", [0, 1, 5, 60, 1300])
def test_prose_stops_with_the_sentence_that_reaches_the_number_of_words(words: int) -> None:
    for seed in range(20):
        prose = prose_of_words(random.Random(seed), words)
        lengths = [len(sentence.split()) for sentence in prose]
        assert sum(lengths) >= words
        assert sum(lengths[:-1]) < max(words, 1)


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


def depths(examples: Iterable[Example]) -> list[float]:
    """Where the facts stand, as a share of the characters of the context."""
    places = [
        span.start / (len(example.context) - span.end + span.start)
        for example, question in asked(examples)
        for span in question.spans
        if span.kind == "fact"
    ]
    return sorted(places)


def test_scattered_facts_stand_anywhere_alike() -> None:
    found = depths(some(LONG_CONTEXT, 200))
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert abs(found[int(share * len(found))] - share) < 0.05


@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_at_a_fixed_depth_the_facts_stand_together_there(depth: float) -> None:
    task = long_context((400, 500), depth)
    for example in some(task, 10):
        check(example)
        facts = [names_someone(sentence) for sentence in sentences(example.context)]
        first, last = facts.index(True), len(facts) - facts[::-1].index(True)
        assert all(facts[first:last])
        assert abs(first / (len(facts) - last + first) - depth) < 0.05


def test_length_and_depth_change_neither_facts_nor_questions() -> None:
    variants = (long_context((0, 0)), long_context((50, 60), 0.5), context_of_tokens(900, characters, 1.0))
    for index in range(5):
        told = [[name for name in sentences(v.example(0, index).context) if names_someone(name)] for v in variants]
        asks = [[question.text for question in v.example(0, index).questions] for v in variants]
        assert told[0] == told[1] == told[2]
        assert asks[0] == asks[1] == asks[2] == [q.text for q in LONG_CONTEXT.example(0, index).questions]


# --- contexts of a number of tokens


def characters(text: str) -> int:
    """A tokenizer of two characters a token."""
    return (len(text) + 1) // 2


def word_pieces(text: str) -> int:
    """A tokenizer that parts long words and full stops, and says where the text begins."""
    return 1 + sum((len(word) + 5) // 6 for word in re.findall(r"\w+|[^\w\s]", text))


@pytest.mark.parametrize("count", [characters, word_pieces])
@pytest.mark.parametrize("tokens", [600, 1024, 4096, 32_768])
@pytest.mark.parametrize("depth", [None, 0.5])
def test_a_context_has_the_tokens_asked_for_or_two_per_cent_less(count: Any, tokens: int, depth: float | None) -> None:
    for seed in range(10 if tokens < 5000 else 1):
        example = context_of_tokens(tokens, count, depth).example(seed, 0)
        assert 0.98 * tokens <= count(example.context) <= tokens
        check(example)


@given(seeds, st.integers(0, 60))
def test_even_a_short_context_has_them(seed: int, more: int) -> None:
    evidence = word_pieces(long_context((0, 0)).example(seed, 0).context)
    tokens = evidence + 40 + more
    example = context_of_tokens(tokens, word_pieces).example(seed, 0)
    assert 0.98 * tokens <= word_pieces(example.context) <= tokens


def test_the_longest_context_is_read_a_few_times_only() -> None:
    read = []

    def count(text: str) -> int:
        read.append(len(text))
        return word_pieces(text)

    example = context_of_tokens(MOST_TOKENS, count).example(0, 0)
    assert 0.98 * MOST_TOKENS <= word_pieces(example.context) <= MOST_TOKENS
    assert sum(read) < 4 * len(example.context)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: context_of_tokens(20, word_pieces).example(0, 0), "20 tokens are too few for this context"),
        (lambda: context_of_tokens(-5, word_pieces), "1 or more tokens and 131072 at most, not -5"),
        (lambda: context_of_tokens(131_073, word_pieces), "131072 at most, not 131073"),
        (lambda: context_of_tokens(4096, word_pieces, 1.5), "not 1.5"),
        (lambda: long_context((400, 500), -0.1), "not -0.1"),
        (lambda: long_context((400, 500), float("nan")), "not nan"),
        (lambda: long_context((500, 400)), "not from 500 to 400"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(refused: Any, said: str) -> None:
    with pytest.raises(DatasetError) as error:
        refused()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_sentences_are_varied() -> None:
    drawn = draw_sentences(random.Random(0), 1000)
    assert len(set(drawn)) > 900
    assert all(re.fullmatch(r"[A-Z][a-z, ]+\.", sentence) for sentence in drawn)
