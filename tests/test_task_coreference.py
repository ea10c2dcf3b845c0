"""The contract of task ``coreference``."""

import re
from collections import Counter, defaultdict
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen.coreference import COREFERENCE, GENDERED_JOBS, SIZES
from datasets_gen.example import Example, Question, Split
from datasets_gen.lexicon import name_split
from datasets_gen.task import ABSTENTION
from kvbench.metrics.text import token_f1
from solvers.coreference import BOND_NAMES, NAME, read, read_question, solve

LEVELS = range(COREFERENCE.top_level + 1)
every_way = pytest.mark.parametrize("held_out", [False, True])
every_level = pytest.mark.parametrize("level", LEVELS)
every_split = pytest.mark.parametrize("split", ["train", "test"])


def some(count: int, split: Split = "test", level: int | None = None, held_out: bool = False) -> list[Example]:
    return [COREFERENCE.example(11, index, split, level, held_out=held_out) for index in range(count)]


def texts(example: Example, question: Question, *kinds: str) -> list[str]:
    return [example.context[span.start : span.end] for span in question.spans if span.kind in kinds]


def sentences(text: str) -> list[str]:
    return [f"{sentence}." for sentence in text.removesuffix(".").split(". ")]


def kind(mention: str) -> str:
    if re.fullmatch(NAME, mention):
        return "name"
    return "description" if mention.lower().startswith("the ") else "pronoun"


def check(example: Example) -> None:
    """What holds of every example, whatever its level, split and wording."""
    whole = sentences(example.context)
    assert all(said.subject for said in read(example.context)), example.context
    for question in example.questions:
        found = solve(question.text, example.context)
        assert question.type == "standard"
        if not question.answerable:
            assert found == set(), question
            assert (question.golds, question.spans, question.hops) == ((ABSTENTION,), (), 0)
            continue
        assert found == set(question.golds), question
        assert all(0 <= span.start < span.end <= len(example.context) for span in question.spans)
        spans = sorted(span for span in ((s.start, s.end) for s in question.spans if s.kind in ("fact", "bridge")))
        evidence = [example.context[start:end] for start, end in spans]
        assert set(evidence) <= set(whole)
        assert question.hops == len(evidence) == len(set(spans)) <= 3
        assert solve(question.text, " ".join(evidence)) == set(question.golds), question
        for left_out in evidence:
            rest = [sentence for sentence in whole if sentence != left_out]
            assert solve(question.text, " ".join(rest)) != set(question.golds), (example.context, question)
        (answer,), (subject,), _ = (texts(example, question, kind) for kind in ("answer", "subject", "fact"))
        assert question.golds == (answer,)
        assert subject in question.text
        for part in question.spans:
            assert any(start <= part.start < part.end <= end for start, end in spans)


@every_level
@every_split
@every_way
def test_a_reader_of_the_evidence_and_nothing_less_finds_the_gold(level: int, split: Split, held_out: bool) -> None:
    for example in some(25, split, level, held_out):
        check(example)


@given(st.integers(0, 2**32), st.integers(0, 10**6), st.sampled_from(LEVELS), st.booleans())
def test_the_contract_holds_for_any_seed(seed: int, index: int, level: int, held_out: bool) -> None:
    example = COREFERENCE.example(seed, index, "test", level, held_out=held_out)
    assert example == COREFERENCE.example(seed, index, "test", level, held_out=held_out)
    check(example)


@every_level
@every_way
def test_questions_are_all_different_and_as_many_as_asked_for(level: int, held_out: bool) -> None:
    for wanted in (1, 9, 16):
        for index in range(20):
            example = COREFERENCE.example(2, index, "test", level, wanted, held_out)
            assert len({question.text for question in example.questions}) == len(example.questions) <= wanted
            if level == COREFERENCE.top_level and wanted <= COREFERENCE.questions_per_context:
                assert len(example.questions) == wanted


@every_level
def test_each_level_uses_the_references_that_it_teaches(level: int) -> None:
    mentions = Counter(kind(said.mention) for example in some(100, level=level) for said in read(example.context))
    assert set(mentions) == {"name", *SIZES[level].references}
    if level == COREFERENCE.top_level:
        assert 0.6 < 1 - mentions["name"] / mentions.total() < 0.75
        assert min(mentions.values()) > 0.2 * mentions.total()


def test_chains_of_two_references_occur() -> None:
    asked = Counter(question.hops for example in some(100) for question in example.questions)
    assert set(asked) == {0, 1, 2, 3}
    assert asked[2] + asked[3] > asked[1]
    assert asked[3] > 0.05 * asked.total()


def test_a_description_fits_one_person_and_tells_no_gender() -> None:
    for example in some(200, "train"):
        said = read(example.context)
        nouns = [s.value for s in said if s.relation == "job"] + [s.relation for s in said if s.relation in BOND_NAMES]
        assert len(set(nouns)) == len(nouns)
        assert set(GENDERED_JOBS).isdisjoint(nouns)


def test_nobody_is_told_the_same_twice_and_no_two_values_share_a_word() -> None:
    for example in some(100):
        said = read(example.context)
        assert len({(s.relation, s.subject) for s in said}) == len(said)
        for relation in {s.relation for s in said}:
            words = [word for s in said if s.relation == relation for word in s.value.split()]
            assert len(set(words)) == len(words)


def test_the_answer_stands_in_no_other_place() -> None:
    """A job that a description repeats is no question: the description would give it away."""
    for example in some(200):
        for question in example.questions:
            if question.answerable and question.answer_type not in ("person", "numeral"):
                assert len(re.findall(rf"\b{question.golds[0]}\b", example.context)) == 1, question


def test_perturbed_questions_ask_for_what_is_told_of_somebody_else() -> None:
    forward = reverse = 0
    for example in some(200):
        said = read(example.context)
        people = {s.subject for s in said} | {s.value for s in said if s.relation in BOND_NAMES}
        for question in example.questions:
            if question.answerable:
                continue
            asked, is_reverse = read_question(question.text)
            assert asked.relation in {s.relation for s in said}
            if not is_reverse:
                assert asked.subject in people
            forward, reverse = forward + (not is_reverse), reverse + is_reverse
    total = sum(len(example.questions) for example in some(200))
    assert 0.2 < (forward + reverse) / total < 0.3
    assert min(forward, reverse) > 0.05 * total


@every_split
def test_people_belong_to_the_split_and_share_no_word(split: Split) -> None:
    for example in some(100, split):
        people = {said.subject for said in read(example.context) if said.subject}
        assert {name_split(name) for name in people} == {split}
        words = [word for name in people for word in name.split()]
        assert len(set(words)) == len(words)


def test_train_and_test_share_no_subject_and_value() -> None:
    train, test = (
        {(said.subject, said.value) for example in some(150, split) for said in read(example.context)}
        for split in ("train", "test")
    )
    assert len(train) > 1000
    assert not train & test


def test_stated_values_are_all_names_and_values_in_order() -> None:
    for example in some(60):
        stated = {name for said in read(example.context) for name in (said.subject, said.value)}
        assert set(example.stated_values) == stated
        assert len(example.stated_values) == len(stated)
        words = [value for value in example.stated_values if value.isalpha()]
        assert words == sorted(words, key=re.findall(r"[A-Za-z]+", example.context).index)


def test_every_kind_of_question_is_asked() -> None:
    asked = [question for example in some(200) for question in example.questions]
    answered = [question for question in asked if question.answerable]
    assert {question.direction for question in answered} == {"forward", "reverse"}
    types = {"person", "thing", "organisation", "creature", "location", "numeral", "date", "event"}
    assert {question.answer_type for question in answered} == types


# --- who guesses


def form(question: Question) -> str:
    return read_question(question.text)[0].template


def common_answers(golds: list[str]) -> list[str]:
    words = Counter(word for gold in golds for word in gold.split())
    return [text for counted in (Counter(golds), words) for text, _ in counted.most_common(4)]


def guesses(question: Question, common: list[str]) -> list[str]:
    """What might be answered blindly: a common answer or word, or the name or value asked about."""
    asked, _ = read_question(question.text)
    return [*common, asked.subject or asked.value]


@cache
def score(guess: str, gold: str) -> float:
    """An unanswerable question is right only when abstained from, in full."""
    return token_f1(guess, gold) if ABSTENTION not in (guess, gold) else 100.0 * (guess == gold)


def test_a_blind_guesser_stays_near_the_stated_chance() -> None:
    """The guesser makes, for each form of question, the kind of guess that scores best on the train split."""
    seen = defaultdict(list)
    for example in some(330, "train"):
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
        for example in some(170)
        for question in example.questions
        if (key := form(question)) in best
    ]
    assert abs(sum(scores) / len(scores) - COREFERENCE.chance) < 3
