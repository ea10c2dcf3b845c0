"""Task `long_context`: sound at every level, length and depth, in both splits and both sets of phrasings."""

import random
import re
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen.errors import DatasetError
from datasets_gen.example import Example, Question, Split
from datasets_gen.lexicon import lexicon, name_split
from datasets_gen.long_context import LONG_CONTEXT, MOST_TOKENS, SIZES, context_of_tokens, long_context
from datasets_gen.prose import TEMPLATES, draw_sentences, prose_of_words
from datasets_gen.task import ABSTENTION, Task
from kvbench.metrics.text import score_text
from solvers.long_context import names_someone, readings, sentences, solve, statements

TOP = LONG_CONTEXT.top_level
levels = st.integers(0, TOP)
seeds = st.integers(0, 2**32)
splits = st.sampled_from(["train", "test"])
every_level = pytest.mark.parametrize("level", range(TOP + 1))


def some(count: int, level: int = TOP, task: Task = LONG_CONTEXT) -> list[Example]:
    return [task.example(3, index, "test", level) for index in range(count)]


def asked(examples: list[Example]) -> list[tuple[Example, Question]]:
    return [(example, question) for example in examples for question in example.questions]


def texts(example: Example, question: Question, kind: str) -> list[str]:
    return [example.context[span.start : span.end] for span in question.spans if span.kind == kind]


def prose_of(example: Example) -> list[str]:
    return [example.context[span.start : span.end] for span in example.spans]


def check(example: Example) -> None:
    """All that holds for the questions of any example."""
    whole = sentences(example.context)
    for question in example.questions:
        assert solve(question.text, example.context) == (set(question.golds) if question.answerable else set())
        if not question.answerable:
            assert (question.golds, question.spans, question.hops) == ((ABSTENTION,), (), 0)
            continue
        (fact,), (answer,), (subject,) = (texts(example, question, kind) for kind in ("fact", "answer", "subject"))
        assert fact in whole
        assert solve(question.text, fact) == {answer} == set(question.golds)
        assert subject in question.text
        rest = " ".join(sentence for sentence in whole if sentence != fact)
        assert solve(question.text, rest) == set()


# --- the questions


@given(seeds, levels, splits, st.booleans())
def test_a_reader_of_the_facts_finds_the_gold_and_nothing_else(
    seed: int, level: int, split: Split, held_out: bool
) -> None:
    example = LONG_CONTEXT.example(seed, 0, split, level, held_out=held_out)
    check(example)
    assert {name_split(subject) for _, subject, _ in statements(example.context)} == {split}
    assert example == LONG_CONTEXT.example(seed, 0, split, level, held_out=held_out)


@given(seeds, levels, st.integers(1, 40))
def test_no_question_is_asked_twice(seed: int, level: int, wanted: int) -> None:
    questions = LONG_CONTEXT.example(seed, 0, level=level, questions=wanted).questions
    assert 1 <= len({question.text for question in questions}) == len(questions) <= wanted


def test_the_task_asks_ten_questions_of_a_context() -> None:
    assert {len(example.questions) for example in some(100)} == {10} == {LONG_CONTEXT.questions_per_context}


@every_level
def test_everything_promised_is_asked(level: int) -> None:
    questions = [question for _, question in asked(some(150, level))]
    assert {question.direction for question in questions} == {"forward", "reverse"}
    kinds = {"person", "thing", "organisation", "creature", "location", "numeral", "date", "event"}
    assert {question.answer_type for question in questions if question.answerable} == kinds
    assert {question.hops for question in questions} == {0, 1}
    assert 0.05 < sum(not question.answerable for question in questions) / len(questions) < 0.25


def test_held_out_phrasings_are_never_seen_in_training() -> None:
    seen = {held_out: set[str]() for held_out in (False, True)}
    for held_out, of_stream in seen.items():
        for index in range(60):
            example = LONG_CONTEXT.example(0, index, "train", questions=40, held_out=held_out)
            facts = filter(names_someone, sentences(example.context))
            of_stream |= {template for fact in facts for _, template, _ in readings(fact, "statements")}
            for question in example.questions:
                of_stream |= {t for way in ("forward", "reverse") for _, t, _ in readings(question.text, way)}
    assert seen[False].isdisjoint(seen[True])
    assert min(map(len, seen.values())) >= 24  # three templates at least of each of eight relations


def test_stated_values_are_all_that_the_context_states() -> None:
    for example in some(40):
        stated = {name for _, subject, value in statements(example.context) for name in (subject, value)}
        assert set(example.stated_values) == stated
        assert len(example.stated_values) == len(stated)


def form(question: str) -> str:
    return next(template for way in ("forward", "reverse") for _, template, _ in readings(question, way))


def test_the_stated_chance_is_that_of_the_best_blind_guesser() -> None:
    answers: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for example in LONG_CONTEXT.generate(0, 300, "train"):
        for question in example.questions:
            answers[form(question.text)][question.golds] += 1

    @cache
    def f1(said: str, golds: tuple[str, ...]) -> float:
        return score_text(said, golds, golds != (ABSTENTION,), (ABSTENTION,), ()).f1

    @cache
    def guess(of_form: str) -> str:
        """The answer that would have scored best in training."""
        counts = answers[of_form]
        scores = {
            said: sum(times * f1(said, golds) for golds, times in counts.items())
            for (said, *_), _ in counts.most_common(10)
        }
        return max(scores, key=lambda said: scores[said])

    guessed = [
        f1(guess(form(question.text)), question.golds)
        for example in LONG_CONTEXT.generate(1, 150)
        for question in example.questions
    ]
    assert abs(sum(guessed) / len(guessed) - LONG_CONTEXT.chance) < 3


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
    for example in some(20, level):
        prose = " ".join(prose_of(example))
        facts = [sentence for sentence in sentences(example.context) if names_someone(sentence)]
        assert sorted(sentences(prose) + facts) == sorted(sentences(example.context))
        assert not names_someone(prose)
        fewest, most = SIZES[level][2]
        assert fewest <= len(prose.split()) <= most + 15
        assert all(span.kind == "distractor" for span in example.spans)


def depths(examples: list[Example]) -> list[float]:
    """Where the facts stand, as a share of the characters of the context."""
    places = [
        span.start / (len(example.context) - span.end + span.start)
        for example, question in asked(examples)
        for span in question.spans
        if span.kind == "fact"
    ]
    return sorted(places)


def test_scattered_facts_stand_anywhere_alike() -> None:
    found = depths(some(200))
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert abs(found[int(share * len(found))] - share) < 0.05


@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_at_a_fixed_depth_the_facts_stand_together_there(depth: float) -> None:
    task = long_context((400, 500), depth)
    for example in some(10, task=task):
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
        (lambda: context_of_tokens(-5, word_pieces).example(0, 0), "-5 tokens are too few for this context"),
        (lambda: context_of_tokens(131_073, word_pieces), "131072 tokens at most, not 131073"),
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
