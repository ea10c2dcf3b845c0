"""Task ``instructions``: what is obeyed, what is refused, and that the evidence alone decides."""

import re
from collections import Counter, defaultdict
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen import Example, Question, Split
from datasets_gen.defences import ATTACKS, DEFENCES, REFUSAL
from datasets_gen.directives import KINDS, check, obeyed
from datasets_gen.instructions import INSTRUCTIONS, SIZES
from datasets_gen.lexicon import name_split
from kvbench.metrics.text import token_f1
from solvers.instructions import is_attack, plain, read, sentences, solve

TOP = INSTRUCTIONS.top_level
LEVELS = range(TOP + 1)
every_level = pytest.mark.parametrize("level", LEVELS)
any_example = given(
    st.integers(0, 2**32),
    st.integers(0, 10**6),
    st.sampled_from(LEVELS),
    st.sampled_from(get_args(Split)),
    st.booleans(),
)


def some(count: int = 40, level: int = TOP, split: Split = "test", held_out: bool = False) -> list[Example]:
    return [INSTRUCTIONS.example(3, index, split, level, held_out=held_out) for index in range(count)]


def at_every_setting(level: int) -> list[tuple[Example, Question]]:
    return [
        (example, question)
        for split in get_args(Split)
        for held_out in (False, True)
        for example in some(15, level, split, held_out)
        for question in example.questions
    ]


def texts(example: Example, question: Question, *kinds: str) -> list[str]:
    """What the context says where the question has a span of these kinds."""
    return [example.context[span.start : span.end] for span in question.spans if span.kind in kinds]


def parts(example: Example, kind: str) -> list[str]:
    return [example.context[span.start : span.end] for span in example.spans if span.kind == kind]


def expected(question: Question) -> str:
    return question.golds[0] if question.target is None else question.target


def evidence(example: Example, question: Question) -> list[str]:
    """The sentences that decide what is to be written, in the order of the context."""
    ruling = parts(example, "directive") if question.directives else []
    needed = {*texts(example, question, "fact", "bridge"), *ruling}
    return [sentence for sentence in sentences(example.context) if sentence in needed]


# --- the answers


@any_example
def test_a_reader_writes_the_target_and_nothing_else(
    seed: int, index: int, level: int, split: Split, held_out: bool
) -> None:
    example = INSTRUCTIONS.example(seed, index, split, level, held_out=held_out)
    for question in example.questions:
        assert solve(question.text, example.context) == {expected(question)}, question
        assert plain(question.text, example.context) == set(question.golds), question


@every_level
def test_the_evidence_alone_tells_what_to_write(level: int) -> None:
    for example, question in at_every_setting(level):
        assert solve(question.text, " ".join(evidence(example, question))) == {expected(question)}, question


@every_level
def test_without_any_one_sentence_of_the_evidence_something_else_is_written(level: int) -> None:
    for example, question in at_every_setting(level):
        for left_out in evidence(example, question):
            rest = " ".join(sentence for sentence in sentences(example.context) if sentence != left_out)
            assert solve(question.text, rest) != {expected(question)}, (question, left_out)


def test_it_is_the_defence_and_nothing_else_that_holds_the_leak() -> None:
    for example in some(60):
        kept = example.context
        for defence in parts(example, "defence"):
            kept = " ".join(kept.replace(defence, "").split())
        for question in example.questions:
            if question.protected:
                assert question.golds == ((REFUSAL,) if parts(example, "defence") else (question.protected,))
                assert solve(question.text, kept) == {question.protected}
            else:
                assert solve(question.text, kept) == {expected(question)}


@any_example
def test_the_target_obeys_every_directive_and_the_plain_answer_none(
    seed: int, index: int, level: int, split: Split, held_out: bool
) -> None:
    """A directive that the plain answer obeys by itself would measure nothing."""
    for question in INSTRUCTIONS.example(seed, index, split, level, held_out=held_out).questions:
        if question.directives:
            assert obeyed(question.directives, expected(question)) == 1.0, question
            assert not [d for d in question.directives if check(d, question.golds[0])], question


@every_level
def test_a_directive_left_out_is_a_directive_disobeyed(level: int) -> None:
    for example, question in at_every_setting(level):
        for directive, sentence in zip(question.directives, parts(example, "directive"), strict=False):
            (output,) = solve(question.text, example.context.replace(sentence, "").strip())
            assert not check(directive, output), (question, directive)


# --- where they stand


@every_level
def test_spans_are_the_answer_and_whole_sentences_of_the_context(level: int) -> None:
    for example, question in at_every_setting(level):
        whole = sentences(example.context)
        assert texts(example, question, "answer") == list(question.golds)
        assert all(text in whole for text in texts(example, question, "fact"))
        assert all(subject in question.text for subject in texts(example, question, "subject"))
        assert question.hops == len(texts(example, question, "fact"))
        answer = next(span for span in question.spans if span.kind == "answer")
        facts = [span for span in question.spans if span.kind == "fact"]
        assert facts[0].start <= answer.start < answer.end <= facts[-1].end <= len(example.context)


@every_level
def test_the_parts_of_the_system_prompt_are_marked(level: int) -> None:
    for example, question in at_every_setting(level):
        prompt = read(example.context)
        assert parts(example, "directive") == prompt.rules
        assert " ".join(parts(example, "defence")).count(REFUSAL) == prompt.guarded
        for defence in parts(example, "defence"):
            assert all(sentence in sentences(example.context) for sentence in sentences(defence))
        if question.protected:
            assert question.protected == " ".join(prompt.rules)
            assert question.protected in example.context
        elif level > 0:
            assert [(d.kind, d.argument) for d in question.directives] == list(prompt.understood.items())
        instructions = max((span.end for span in example.spans), default=0)
        assert all(span.start > instructions for span in question.spans if not question.protected and instructions)


def test_stated_values_are_all_that_the_facts_state() -> None:
    for example in some(60):
        stated = [name for _, subject, value in read(example.context).statements for name in (subject, value)]
        assert set(example.stated_values) == set(stated)
        assert len(example.stated_values) == len(set(stated))


# --- how many and which


@any_example
def test_as_many_different_questions_as_wanted(seed: int, index: int, level: int, split: Split, held_out: bool) -> None:
    example = INSTRUCTIONS.example(seed, index, split, level, held_out=held_out)
    asked = [question.text for question in example.questions]
    assert len(set(asked)) == len(asked) <= INSTRUCTIONS.questions_per_context
    assert len(asked) == INSTRUCTIONS.questions_per_context or level < TOP
    assert INSTRUCTIONS.example(seed, index, split, level, held_out=held_out) == example
    for more in (1, 40):
        many = INSTRUCTIONS.example(seed, index, split, level, more, held_out).questions
        assert 1 <= len({question.text for question in many}) == len(many) <= more


@pytest.mark.parametrize("held_out", [False, True])
def test_everybody_named_belongs_to_the_split(held_out: bool) -> None:
    for split in get_args(Split):
        for example in some(40, split=split, held_out=held_out):
            assert {name_split(subject) for _, subject, _ in read(example.context).statements} == {split}


def test_every_kind_of_everything_occurs_in_its_share() -> None:
    examples = some(400)
    questions = [question for example in examples for question in example.questions]
    attacks = [question for question in questions if question.protected]
    assert all(is_attack(question.text) == bool(question.protected) for question in questions)
    assert len(attacks) / len(questions) == pytest.approx(0.4, abs=0.03)
    defended = [example for example in examples if parts(example, "defence")]
    assert len(defended) / len(examples) == pytest.approx(0.75, abs=0.06)
    first = [min(example.spans, key=lambda span: span.start).kind for example in defended]
    assert first.count("defence") / len(first) == pytest.approx(0.5, abs=0.08)
    assert {len(parts(example, "directive")) for example in examples} == {1, 2, 3, 4}
    kinds = Counter(kind for example in examples for kind in read(example.context).understood)
    assert kinds.keys() == KINDS.keys()
    assert min(kinds.values()) > 0.5 * max(kinds.values())
    assert {q.direction for q in questions} == {"forward", "reverse"}
    assert {q.answer_type for q in questions} >= {"person", "location", "numeral", "date", "event", "thing", "creature"}
    pretexts = {pretext for question in attacks for pretext, said in ATTACKS.items() if question.text in said.common}
    assert pretexts == set(ATTACKS)
    assert len({example.context for example in examples}) == len(examples)
    assert {question.answerable for question in questions} == {True}


def test_each_level_adds_one_thing() -> None:
    for level, size in enumerate(SIZES):
        examples = some(60, level)
        questions = [question for example in examples for question in example.questions]
        assert any(q.directives for q in questions) == (level > 0)
        assert any(q.protected for q in questions) == (level > 1)
        assert any(parts(example, "defence") for example in examples) == (level > 2)
        assert {len(q.directives) for q in questions if not q.protected} <= set(
            range(size.directives[0], size.directives[1] + 1)
        )


# --- wording


def test_defences_name_the_refusal_and_are_short() -> None:
    lengths = []
    for template in DEFENCES.common + DEFENCES.held_out:
        assert sentences(template)[-1].endswith(": {refusal}.")
        assert template.count("{refusal}") == 1
        lengths.append(len(template.format(refusal=REFUSAL).split()))
    assert min(lengths) <= 25
    assert max(lengths) <= 60


def test_attacks_come_in_many_words_all_different() -> None:
    assert len(ATTACKS) >= 6
    said = [text for pretext in ATTACKS.values() for text in pretext.common + pretext.held_out]
    assert len(set(said)) == len(said)


@pytest.mark.parametrize("held_out", [False, True])
def test_phrasings_of_the_two_streams_are_disjoint(held_out: bool) -> None:
    for example in some(40, held_out=held_out):
        for question in example.questions:
            if question.protected:
                assert any(question.text in (p.held_out if held_out else p.common) for p in ATTACKS.values())


def test_the_longest_target_fits_into_the_answer() -> None:
    """At 1.4 tokens for a word, and one for each sign beside it."""
    targets = [expected(q) for held_out in (False, True) for e in some(300, held_out=held_out) for q in e.questions]
    assert max(1.4 * len(t.split()) + len(re.findall(r"[^\w\s]", t)) for t in targets) < INSTRUCTIONS.max_new_tokens


# --- guessing


def form(text: str) -> str:
    """The question without its names and values."""
    return text if is_attack(text) else re.sub(r"(?<= )[A-Z][a-z]+|\d+|\w+(?=\?$)", "#", text)


def worth(guess: str, golds: Counter[str]) -> float:
    return sum(count * token_f1(guess, gold) for gold, count in golds.items())


def test_the_best_blind_guess_scores_what_the_task_says() -> None:
    """Whoever sees only the question answers an attack by the refusal and has hardly a chance with the rest."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for example in some(750, split="train"):
        for question in example.questions:
            seen[form(question.text)][question.golds[0]] += 1
    best = {asked: max(golds.most_common(3), key=lambda g: worth(g[0], golds))[0] for asked, golds in seen.items()}
    asked = [question for example in some(375) for question in example.questions]
    scores = [token_f1(best.get(form(question.text), ""), question.golds[0]) for question in asked]
    assert sum(scores) / len(scores) == pytest.approx(INSTRUCTIONS.chance, abs=3.0)
