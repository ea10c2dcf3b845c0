"""Task ``instructions``: what is obeyed, what is refused, and that the evidence alone decides."""

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen import Split
from datasets_gen.examples.directives import DIRECTIVE_KINDS, Directive, check, share_obeyed
from datasets_gen.tasks.instructions import INSTRUCTIONS
from datasets_gen.writing.system_prompt import ATTACKS, REFUSAL
from tests.support.tasks.solvers.instructions import is_attack, read, solve
from tests.support.tasks.solvers.text import sentences
from tests.support.tasks.suite import asked, every_way, parts, some

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


# --- the answers


def test_it_is_the_defence_and_nothing_else_that_holds_the_leak() -> None:
    for example in some(INSTRUCTIONS, 60):
        kept = example.context
        for defence in parts(example, "defence"):
            kept = " ".join(kept.replace(defence, "").split())
        for question in example.questions:
            if question.protected:
                assert question.perfect_output == (
                    REFUSAL if parts(example, "defence") else question.protected
                )
                assert question.golds[0] == question.perfect_output
                if len(question.golds) == 2:  # a refusal under the directives
                    rules = [Directive(*rule) for rule in read(example.context).understood.items()]
                    assert share_obeyed(rules, question.golds[1]) == 1.0
                assert solve(question.text, kept) == {question.protected}
            else:
                assert solve(question.text, kept) == {question.perfect_output}


@any_example
def test_the_target_obeys_every_directive_and_the_plain_answer_none(
    seed: int, index: int, level: int, split: Split, held_out: bool
) -> None:
    """A directive that the plain answer obeys by itself would measure nothing."""
    for question in INSTRUCTIONS.example(seed, index, split, level, held_out=held_out).questions:
        if question.directives:
            assert share_obeyed(question.directives, question.perfect_output) == 1.0, question
            assert not [d for d in question.directives if check(d, question.golds[0])], question


# --- where they stand


@every_level
def test_the_parts_of_the_system_prompt_are_marked(level: int) -> None:
    for example, question in asked(every_way(INSTRUCTIONS, 15, level)):
        prompt = read(example.context)
        assert parts(example, "directive") == prompt.rules
        assert " ".join(parts(example, "defence")).count(REFUSAL) == prompt.guarded
        for defence in parts(example, "defence"):
            assert all(sentence in sentences(example.context) for sentence in sentences(defence))
        if question.protected:
            assert question.protected == " ".join(prompt.rules)
            assert question.protected in example.context
        elif level > 0:
            assert [(d.kind, d.argument) for d in question.directives] == list(
                prompt.understood.items()
            )
        instructions = max((span.end for span in example.spans), default=0)
        facts = [span for span in question.spans if span.kind != "directive"]
        assert all(
            span.start > instructions for span in facts if not question.protected and instructions
        )


# --- how many and which


def test_every_kind_of_everything_occurs_in_its_share() -> None:
    examples = some(INSTRUCTIONS, 400)
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
    assert kinds.keys() == DIRECTIVE_KINDS.keys()
    assert min(kinds.values()) > 0.5 * max(kinds.values())
    assert {q.direction for q in questions} == {"forward", "reverse"}
    assert {q.answer_type for q in questions} >= {
        "person",
        "location",
        "numeral",
        "date",
        "event",
        "thing",
        "creature",
    }
    pretexts = {
        pretext
        for question in attacks
        for pretext, said in ATTACKS.items()
        if question.text in said.common
    }
    assert pretexts == set(ATTACKS)
    assert len({example.context for example in examples}) == len(examples)
    assert {question.answerable for question in questions} == {True}
