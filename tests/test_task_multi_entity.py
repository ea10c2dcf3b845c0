"""The contract of task ``multi_entity``."""

import random
from collections import Counter, defaultdict
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen.example import Example, Question, Split
from datasets_gen.lexicon import lexicon, name_split
from datasets_gen.multi_entity import MULTI_ENTITY, STEM, alike, draw_namesakes, draw_stranger
from datasets_gen.task import ABSTENTION
from kvbench.metrics.text import token_f1
from solvers.multi_entity import read, read_question, solve

LEVELS = range(MULTI_ENTITY.top_level + 1)
every_way = pytest.mark.parametrize("held_out", [False, True])
every_level = pytest.mark.parametrize("level", LEVELS)
every_split = pytest.mark.parametrize("split", ["train", "test"])


def some(count: int, split: Split = "test", level: int | None = None, held_out: bool = False) -> list[Example]:
    return [MULTI_ENTITY.example(11, index, split, level, held_out=held_out) for index in range(count)]


def texts(example: Example, question: Question, *kinds: str) -> list[str]:
    return [example.context[span.start : span.end] for span in question.spans if span.kind in kinds]


def sentences(text: str) -> list[str]:
    return [f"{sentence}." for sentence in text.removesuffix(".").split(". ")]


def check(example: Example) -> None:
    """What holds of every example, whatever its level, split and wording."""
    whole = sentences(example.context)
    for question in example.questions:
        found = solve(question.text, example.context)
        assert question.type == "standard"
        if not question.answerable:
            assert found == set(), question
            assert (question.golds, question.spans, question.hops) == ((ABSTENTION,), (), 0)
            continue
        assert found == set(question.golds), question
        evidence = sorted(set(texts(example, question, "fact", "bridge")), key=whole.index)
        assert all(0 <= span.start < span.end <= len(example.context) for span in question.spans)
        assert set(evidence) <= set(whole)
        assert question.hops == len(evidence) == len(question.bridges) + 1
        assert solve(question.text, " ".join(evidence)) == set(question.golds)
        for left_out in evidence:
            rest = [sentence for sentence in whole if sentence != left_out]
            assert solve(question.text, " ".join(rest)) == set(), question
        (answer,), (subject,), (fact,) = (texts(example, question, kind) for kind in ("answer", "subject", "fact"))
        assert question.golds == (answer,)
        assert answer in fact
        assert subject in question.text


@every_level
@every_split
@every_way
def test_a_reader_of_the_evidence_and_nothing_less_finds_the_gold(level: int, split: Split, held_out: bool) -> None:
    for example in some(12, split, level, held_out):
        check(example)


@given(st.integers(0, 2**32), st.integers(0, 10**6), st.sampled_from(LEVELS), st.booleans())
def test_the_contract_holds_for_any_seed(seed: int, index: int, level: int, held_out: bool) -> None:
    example = MULTI_ENTITY.example(seed, index, "test", level, held_out=held_out)
    assert example == MULTI_ENTITY.example(seed, index, "test", level, held_out=held_out)
    check(example)


@every_level
@every_way
def test_questions_are_all_different_and_as_many_as_asked_for(level: int, held_out: bool) -> None:
    for wanted in (1, 10, 16):
        for index in range(10):
            example = MULTI_ENTITY.example(2, index, "test", level, wanted, held_out)
            assert len({question.text for question in example.questions}) == len(example.questions) <= wanted
            if level == MULTI_ENTITY.top_level:
                assert len(example.questions) == wanted


@every_split
@every_level
def test_people_are_near_identical_and_share_no_word(split: Split, level: int) -> None:
    for example in some(20, split, level):
        people = sorted({said.subject for said in read(example.context)})
        words = [word for name in people for word in name.split()]
        assert len(set(words)) == len(words)
        assert len({name.split()[1][:STEM] for name in people}) == 1
        assert {name_split(name) for name in people} == {split}
        for name in people:
            others = [other for other in people if other != name]
            assert not others or any(alike(name.split()[0], other.split()[0]) for other in others)


@every_split
def test_thousands_of_different_sets_of_people(split: Split) -> None:
    rng = random.Random(0)
    for count in (4, 5):
        assert len({frozenset(draw_namesakes(rng, split, count)) for _ in range(2500)}) > 2000


@every_split
def test_a_stranger_is_like_somebody_and_nobody_of_the_people(split: Split) -> None:
    rng = random.Random(0)
    for count in (1, 2, 3, 4, 5) * 40:
        people = draw_namesakes(rng, split, count)
        stranger = draw_stranger(rng, split, people)
        assert stranger not in people
        assert stranger[1][:STEM] == people[0][1][:STEM]
        assert name_split(" ".join(stranger)) == split


def test_all_have_the_same_attributes_and_no_bond_twice() -> None:
    for example in some(60):
        said = read(example.context)
        for relation in {reading.relation for reading in said}:
            subjects, values = zip(*[(s.subject, s.value) for s in said if s.relation == relation], strict=True)
            assert len(set(subjects)) == len(subjects)
            words = [word for value in values for word in value.split()]
            assert len(set(words)) == len(words)
            if relation not in ("mentor", "tutor", "coach", "teacher", "lawyer"):
                assert set(subjects) == {reading.subject for reading in said}


def test_stated_values_are_all_names_and_values_in_order() -> None:
    for example in some(60):
        stated = {name for said in read(example.context) for name in (said.subject, said.value)}
        assert set(example.stated_values) == stated
        assert len(example.stated_values) == len(stated)


def test_train_and_test_share_no_subject_and_value() -> None:
    train, test = (
        {(said.subject, said.value) for example in some(100, split) for said in read(example.context)}
        for split in ("train", "test")
    )
    assert len(train) > 1000
    assert not train & test


def test_every_kind_of_question_is_asked() -> None:
    asked = [question for example in some(200) for question in example.questions]
    answered = [question for question in asked if question.answerable]
    assert {question.direction for question in answered} == {"forward", "reverse"}
    assert {question.direction for question in asked if not question.answerable} == {"forward", "reverse"}
    assert {question.hops for question in answered} == {1, 2}
    types = {"person", "thing", "organisation", "creature", "location", "numeral", "date", "event"}
    assert {question.answer_type for question in answered} == types
    assert 0.05 < 1 - len(answered) / len(asked) < 0.25


# --- who guesses


def form(question: Question) -> str:
    """The phrasing of a question, and whether it goes over a link; which bond that is is no help."""
    asked, _ = read_question(question.text)
    return f"{asked.template} {asked.subject.startswith('the ')}"


def common_answers(golds: list[str]) -> list[str]:
    words = Counter(word for gold in golds for word in gold.split())
    return [text for counted in (Counter(golds), words) for text, _ in counted.most_common(4)]


def guesses(question: Question, common: list[str]) -> list[str]:
    """What might be answered blindly: a common answer or word, the name asked about, or all families of its stem."""
    asked, _ = read_question(question.text)
    name = " ".join((asked.subject or asked.value).split()[-2:])
    family = name.split()[-1]
    return [*common, name, " ".join(f for f in lexicon().family if f[:STEM] == family[:STEM] and f != family)]


@cache
def score(guess: str, gold: str) -> float:
    """An unanswerable question is right only when abstained from, in full."""
    return token_f1(guess, gold) if ABSTENTION not in (guess, gold) else 100.0 * (guess == gold)


def test_a_blind_guesser_stays_near_the_stated_chance() -> None:
    """The guesser makes, for each form of question, the kind of guess that scores best on the train split."""
    seen = defaultdict(list)
    for example in some(300, "train"):
        for question in example.questions:
            seen[form(question)].append(question)
    common = {key: common_answers([question.golds[0] for question in asked]) for key, asked in seen.items()}
    best = {}
    for key, asked in seen.items():
        tried = zip(*[[score(g, q.golds[0]) for g in guesses(q, common[key])] for q in asked], strict=True)
        totals = [sum(scores) for scores in tried]
        best[key] = totals.index(max(totals))
    scores = [
        score(guesses(question, common[key])[best[key]], question.golds[0])
        for example in some(150)
        for question in example.questions
        if (key := form(question)) in best
    ]
    assert abs(sum(scores) / len(scores) - MULTI_ENTITY.chance) < 3
