"""Task ``knowledge``: every question has the one answer that a reader of its text finds."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen import ABSTENTION, Example, Question, Split, Task
from datasets_gen.knowledge import KNOWLEDGE
from datasets_gen.lexicon import lexicon, name_split
from kvbench.metrics.text import token_f1
from solvers.knowledge import NAME, initials, read, sentences, solve

every_level = pytest.mark.parametrize("level", range(KNOWLEDGE.top_level + 1))
SPLITS: tuple[Split, ...] = ("train", "test")
seeds = st.integers(0, 2**32)


@cache
def some(level: int = KNOWLEDGE.top_level, count: int = 20) -> tuple[Example, ...]:
    """Examples of both splits, in both wordings."""
    return tuple(
        KNOWLEDGE.example(3, index, split, level, held_out=held_out)
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


# --- a guesser who does not see the context


@cache
def kinds() -> dict[str, str]:
    """The list of the lexicon that a word is from."""
    lists = lexicon().model_dump().items()
    return {word: kind for kind, words in lists if isinstance(words[0], str) and kind != "version" for word in words}


def form(question: str) -> str:
    """The question with a blank for each name, value and number."""
    return re.sub(r"\w+", lambda word: "#" if word[0].isdigit() else kinds().get(word[0], word[0]), question)


def score(guess: str, question: Question) -> float:
    """F1 of a guess, in which {0} and {1} stand for the first and the second name in the question."""
    said = guess.format(*re.findall(NAME, question.text), "", "")
    return max(token_f1(said, gold) for gold in question.golds)


def blind_f1(task: Task, train: int = 3000, test: int = 3000) -> float:
    """F1 of the best guess for each form of question, as learned in the train split."""
    seen: dict[str, list[Question]] = defaultdict(list)
    for index in range(train // task.questions_per_context):
        for question in task.example(5, index, "train").questions:
            seen[form(question.text)].append(question)
    guesses: dict[str, str] = {}
    for name, questions in seen.items():
        common = [gold for gold, _ in Counter(q.golds[0] for q in questions).most_common(12)]
        totals = {
            guess: sum(score(guess, question) for question in questions)
            for guess in (*common, ABSTENTION, "{0}", "{1}")
        }
        guesses[name] = max(totals, key=totals.__getitem__)
    contexts = range(test // task.questions_per_context)
    asks = [question for index in contexts for question in task.example(5, index).questions]
    return sum(score(guesses.get(form(q.text), ABSTENTION), q) for q in asks) / len(asks)


def test_chance_is_what_a_blind_guesser_scores() -> None:
    assert blind_f1(KNOWLEDGE) == pytest.approx(KNOWLEDGE.chance, abs=3)


# --- the answers


@every_level
@given(seeds, st.sampled_from(SPLITS), st.booleans())
def test_a_reader_finds_the_golds_and_nothing_else(level: int, seed: int, split: Split, held_out: bool) -> None:
    example = KNOWLEDGE.example(seed, 0, split, level, held_out=held_out)
    for question in example.questions:
        golds = set(question.golds) if question.answerable else set()
        assert solve(question.text, example.context) == golds, question


@every_level
def test_the_evidence_alone_gives_the_golds_and_no_less_of_it_does(level: int) -> None:
    for example, question in asked(some(level)):
        evidence = texts(example, question, "fact", "bridge")
        assert len(evidence) == len(set(evidence)) == question.hops
        if question.answerable:
            assert solve(question.text, " ".join(evidence)) == set(question.golds)
        for left_out in evidence:
            rest = " ".join(sentence for sentence in sentences(example.context) if sentence != left_out)
            found = solve(question.text, rest)
            assert found.isdisjoint(question.golds), question
            assert question.type == "part" or not found, question


@every_level
def test_the_answer_is_read_or_worked_out_of_the_answer_spans(level: int) -> None:
    for example, question in asked(some(level)):
        found, gold = texts(example, question, "answer"), question.golds[0]
        if not question.answerable:
            assert (question.golds, question.spans) == ((ABSTENTION,), ())
        elif question.type == "standard":
            assert found == [gold]
        elif question.answer_type == "numeral":
            assert gold == str(len(found))
        elif question.type == "part":
            assert found == re.split(", | and ", gold)
        elif question.answer_type == "date":
            assert re.fullmatch(rf"\d+ [A-Z][a-z]+ {gold[:3]}\d", found[0])
        elif question.hops == 2:
            dates = {person: date for _, person, date in read(example.context) if date in found}
            assert min(dates, key=lambda person: int(dates[person][-4:])) == gold
        else:
            assert [initials(name) for name in found] == [gold]


@every_level
def test_spans_are_whole_sentences_and_mentions_inside_them(level: int) -> None:
    for example, question in asked(some(level)):
        assert set(texts(example, question, "fact")) <= set(sentences(example.context))
        assert all(subject in question.text for subject in texts(example, question, "subject"))
        facts = [span for span in question.spans if span.kind == "fact"]
        for span in question.spans:
            assert 0 <= span.start < span.end <= len(example.context)
            assert any(fact.start <= span.start < span.end <= fact.end for fact in facts)


def test_initials_hold_no_article() -> None:
    """F1 drops an A, so that the other letter alone would be right."""
    golds = [q.golds[0] for _, q in asked(some()) if "initials" in q.text and q.answerable]
    assert golds
    assert all(re.fullmatch("[B-Z] [B-Z]", gold) for gold in golds)


@every_level
def test_the_instruments_of_a_person_are_not_all_in_a_row(level: int) -> None:
    for example in some(level):
        for person in {subject for _, subject, _ in read(example.context)}:
            rows = [relation == "plays" for relation, subject, _ in read(example.context) if subject == person]
            places = [place for place, plays in enumerate(rows) if plays]
            assert len(places) < 2 or places[-1] - places[0] >= len(places)


# --- the examples


@every_level
def test_stated_values_are_all_that_the_context_states(level: int) -> None:
    for example in some(level):
        stated = {word for _, *words in read(example.context) for word in words}
        assert set(example.stated_values) == stated
        assert len(example.stated_values) == len(stated)


@every_level
def test_questions_differ_and_some_have_no_answer(level: int) -> None:
    for example in some(level):
        assert len({question.text for question in example.questions}) == len(example.questions)
        assert level < KNOWLEDGE.top_level or len(example.questions) == KNOWLEDGE.questions_per_context
    questions = [question for _, question in asked(some(level))]
    assert 0.05 < sum(not question.answerable for question in questions) / len(questions) < 0.25


def test_any_number_of_questions_can_be_asked_for() -> None:
    for level in range(KNOWLEDGE.top_level + 1):
        assert len(KNOWLEDGE.example(0, 0, level=level, questions=1).questions) == 1
        assert len(KNOWLEDGE.example(0, 0, level=level, questions=1000).questions) >= 2


def test_every_kind_of_question_is_asked() -> None:
    questions = [question for _, question in asked(some())]
    assert {(q.type, q.answerable) for q in questions} >= {
        (kind, known) for kind in ("standard", "manipulated", "part") for known in (True, False)
    }
    shares = Counter(question.type for question in questions if question.answerable)
    assert shares["standard"] > shares["manipulated"] > shares["part"] > len(questions) / 10
    assert {(q.type, q.direction) for q in questions} == {
        (kind, way) for kind in ("standard", "manipulated", "part") for way in ("forward", "reverse")
    }
    types = {"person", "thing", "organisation", "creature", "location", "numeral", "date"}
    assert {question.answer_type for question in questions} == types
    assert {q.golds for q in questions if q.answer_type == "numeral"} >= {("1", "one"), ("2", "two"), ("3", "three")}


def test_what_is_worked_out_joins_at_later_levels() -> None:
    kinds = [{question.type for _, question in asked(some(level))} for level in range(KNOWLEDGE.top_level + 1)]
    assert kinds[0] == kinds[1] == kinds[2] == {"standard"}
    assert kinds[3] == {"standard", "manipulated"}
    assert kinds[4] == kinds[5] == {"standard", "manipulated", "part"}


@every_level
def test_the_older_of_two_is_named_first_as_often_as_second(level: int) -> None:
    examples = [KNOWLEDGE.example(4, index, "train", level) for index in range(100)]
    pairs = [q for _, q in asked(examples) if q.answer_type == "person" and q.hops == 2]
    first = sum(re.findall(NAME, question.text)[0] == question.golds[0] for question in pairs)
    assert (level < 3) == (not pairs)
    assert not pairs or 0.3 < first / len(pairs) < 0.7


@given(seeds, st.sampled_from(SPLITS), st.booleans())
def test_the_same_example_again_and_every_person_of_its_split(seed: int, split: Split, held_out: bool) -> None:
    example = KNOWLEDGE.example(seed, 0, split, held_out=held_out)
    assert KNOWLEDGE.example(seed, 0, split, held_out=held_out) == example
    given, family = set(lexicon().given), set(lexicon().family)
    names = re.findall(NAME, " | ".join([example.context, *(question.text for question in example.questions)]))
    people = {name for name in names if name.split()[0] in given and name.split()[1] in family}
    assert people
    assert {name_split(name) for name in people} == {split}
