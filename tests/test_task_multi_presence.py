"""Task ``multi_presence``: every question has the one answer that a reader of its text finds."""

import re
from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen import ABSTENTION, Example, Question, Split
from datasets_gen.lexicon import lexicon, name_split
from datasets_gen.multi_presence import MULTI_PRESENCE
from solvers.multi_presence import NAME, read, sentences, solve
from test_task_knowledge import blind_f1

every_level = pytest.mark.parametrize("level", range(MULTI_PRESENCE.top_level + 1))
SPLITS: tuple[Split, ...] = ("train", "test")
seeds = st.integers(0, 2**32)


@cache
def some(level: int = MULTI_PRESENCE.top_level, count: int = 25) -> tuple[Example, ...]:
    """Examples of both splits, in both wordings."""
    return tuple(
        MULTI_PRESENCE.example(3, index, split, level, held_out=held_out)
        for split in SPLITS
        for held_out in (False, True)
        for index in range(count)
    )


def asked(examples: Iterable[Example]) -> list[tuple[Example, Question]]:
    return [(example, question) for example in examples for question in example.questions]


def texts(example: Example, question: Question, *kinds: str) -> list[str]:
    """What the context says where the question has a span of these kinds, in its order."""
    places = sorted((span.start, span.end) for span in question.spans if span.kind in kinds)
    return [example.context[start:end] for start, end in places]


def test_chance_is_what_a_blind_guesser_scores() -> None:
    assert blind_f1(MULTI_PRESENCE) == pytest.approx(MULTI_PRESENCE.chance, abs=3)


# --- the answers


@every_level
@given(seeds, st.sampled_from(SPLITS), st.booleans())
def test_a_reader_finds_the_gold_and_nothing_else(level: int, seed: int, split: Split, held_out: bool) -> None:
    example = MULTI_PRESENCE.example(seed, 0, split, level, held_out=held_out)
    for question in example.questions:
        golds = set(question.golds) if question.answerable else set()
        assert solve(question.text, example.context) == golds, question


@every_level
def test_the_evidence_alone_gives_the_gold(level: int) -> None:
    for example, question in asked(some(level)):
        evidence = texts(example, question, "fact", "bridge")
        assert len(evidence) == len(set(evidence)) == question.hops
        if question.answerable:
            assert solve(question.text, " ".join(evidence)) == set(question.golds)


@every_level
def test_without_the_sentence_of_the_answer_there_is_none_or_another(level: int) -> None:
    """What came first is still first without what came later, but one has to have read that to know."""
    for example, question in asked(some(level)):
        for answer in (span for span in question.spans if span.kind == "answer"):
            (left_out,) = (
                example.context[span.start : span.end]
                for span in question.spans
                if span.kind == "fact" and span.start <= answer.start < answer.end <= span.end
            )
            rest = " ".join(sentence for sentence in sentences(example.context) if sentence != left_out)
            found = solve(question.text, rest)
            assert found.isdisjoint(question.golds), question
            assert bool(found) == (question.hops > 1), question


@every_level
def test_an_order_is_asked_of_all_mentions_of_a_person(level: int) -> None:
    for example, question in asked(some(level)):
        if question.type != "manipulated" or not question.answerable:
            continue
        facts = texts(example, question, "fact")
        ((period, person),) = {(period.name, words["subject"]) for fact in facts for period, words in read(fact)}
        mentions = [
            words for other, words in read(example.context) if (other.name, words["subject"]) == (period, person)
        ]
        assert question.hops == len(facts) == len(mentions) >= 2
        years = {words["value"]: words["year"] for words in mentions}
        assert years[question.golds[0]] in (min(years.values()), max(years.values()))


@every_level
def test_spans_are_whole_sentences_and_mentions_inside_them(level: int) -> None:
    for example, question in asked(some(level)):
        if not question.answerable:
            assert (question.golds, question.spans) == ((ABSTENTION,), ())
            continue
        assert texts(example, question, "answer") == list(question.golds)
        assert set(texts(example, question, "fact")) <= set(sentences(example.context))
        assert all(subject in question.text for subject in texts(example, question, "subject"))
        facts = [span for span in question.spans if span.kind == "fact"]
        for span in question.spans:
            assert 0 <= span.start < span.end <= len(example.context)
            assert any(fact.start <= span.start < span.end <= fact.end for fact in facts)


@every_level
def test_no_year_and_no_value_is_said_twice(level: int) -> None:
    """Or a question that gives them would have two answers."""
    for example in some(level):
        known = [words for _, words in read(example.context)]
        assert len({words["year"] for words in known}) == len(known)
        assert len({words["value"] for words in known}) == len(known)


def test_the_sentences_are_not_in_the_order_of_time() -> None:
    in_order = [sorted(years) == years for e in some() if (years := [words["year"] for _, words in read(e.context)])]
    assert sum(in_order) < len(in_order) / 10


def test_most_words_of_a_question_without_answer_are_in_the_text() -> None:
    """So that it is not the strange name that gives it away."""
    unanswerable = [(example, question.text) for example, question in asked(some()) if not question.answerable]
    strange = sum(any(name not in e.context for name in re.findall(NAME, text)) for e, text in unanswerable)
    assert 0 < strange < len(unanswerable) / 2
    assert all(year in e.context for e, text in unanswerable for year in re.findall(r"\d{4}", text))


# --- the examples


@every_level
def test_stated_values_are_all_that_the_context_states(level: int) -> None:
    for example in some(level):
        stated = {word for _, words in read(example.context) for word in words.values()}
        assert set(example.stated_values) == stated
        assert len(example.stated_values) == len(stated)


@every_level
def test_questions_differ_and_some_have_no_answer(level: int) -> None:
    for example in some(level):
        assert len({question.text for question in example.questions}) == len(example.questions)
        assert level < MULTI_PRESENCE.top_level or len(example.questions) == MULTI_PRESENCE.questions_per_context
    questions = [question for _, question in asked(some(level))]
    assert 0.05 < sum(not question.answerable for question in questions) / len(questions) < 0.25


@every_level
def test_any_number_of_questions_can_be_asked_for(level: int) -> None:
    assert len(MULTI_PRESENCE.example(0, 0, level=level, questions=1).questions) == 1
    assert len(MULTI_PRESENCE.example(0, 0, level=level, questions=1000).questions) >= 4


def test_every_kind_of_question_is_asked() -> None:
    questions = [question for _, question in asked(some())]
    assert {(q.type, q.direction, q.answerable) for q in questions} == {
        (*kind, known)
        for kind in (("standard", "forward"), ("standard", "reverse"), ("manipulated", "forward"))
        for known in (True, False)
    }
    types = {"person", "thing", "organisation", "creature", "location", "numeral", "date", "event"}
    assert {question.answer_type for question in questions} == types
    assert {question.hops for question in questions} == {0, 1, 2, 3}


def test_the_order_joins_at_a_later_level() -> None:
    kinds = [{question.type for _, question in asked(some(level))} for level in range(MULTI_PRESENCE.top_level + 1)]
    assert kinds == [{"standard"}] * 3 + [{"standard", "manipulated"}] * 3


@given(seeds, st.sampled_from(SPLITS), st.booleans())
def test_the_same_example_again_and_every_person_of_its_split(seed: int, split: Split, held_out: bool) -> None:
    example = MULTI_PRESENCE.example(seed, 0, split, held_out=held_out)
    assert MULTI_PRESENCE.example(seed, 0, split, held_out=held_out) == example
    given, family = set(lexicon().given), set(lexicon().family)
    names = re.findall(NAME, " | ".join([example.context, *(question.text for question in example.questions)]))
    people = {name for name in names if name.split()[0] in given and name.split()[1] in family}
    assert people
    assert {name_split(name) for name in people} == {split}
