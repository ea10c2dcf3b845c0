"""Tasks ``base`` and ``hops``: what they ask, and what they do not."""

import re

import pytest

from datasets_gen import Example, Question, Task
from datasets_gen.tasks.base import BASE
from datasets_gen.tasks.hops import CHAINS_LEVEL, HOPS
from datasets_gen.writing.passage import BONDS, LAWYER
from tests.support.tasks.solvers.relations import PHRASE, read, read_question, resolve, whose
from tests.support.tasks.suite import ANSWER_TYPES, asked, some, texts

both = pytest.mark.parametrize("task", [BASE, HOPS], ids=["base", "hops"])
BOND_NAMES = tuple(bond.name for bond in BONDS)


def subjects(example: Example, question: Question) -> list[str]:
    return texts(example, question, "subject")


@both
def test_both_directions_and_every_kind_of_answer_are_asked_for(task: Task) -> None:
    questions = [question for _, question in asked(some(task, 200))]
    assert {question.direction for question in questions} == {"forward", "reverse"}
    assert {question.answer_type for question in questions if question.answerable} == ANSWER_TYPES


def test_what_is_said_of_nobody_is_not_asked_where_something_is_said_of_others_alone() -> None:
    """Or the relation alone would tell that there is no answer."""
    lacking = 0
    for example, question in asked(some(BASE, 300)):
        said = read(example.context)
        reading, reverse = read_question(question.text)
        if question.answerable or reverse or reading.subject not in {one.subject for one in said}:
            continue
        lacking += 1
        mine = {one.relation for one in said if one.subject == reading.subject}
        mine |= {"possession"} if mine & {"pet", "locker"} else set()
        others = {one.relation for one in said} - mine
        assert reading.relation in others
    assert lacking > 50


def test_a_broken_chain_asks_for_a_lawyer_or_for_who_has_none_but_that() -> None:
    """A tutor may be called a teacher: whoever has one is asked for a lawyer. Who has neither is asked for either."""
    broken = [(example, question) for example, question in asked(some(HOPS, 200)) if not question.answerable]
    assert len(broken) > 100
    for example, question in broken:
        reading, _ = read_question(question.text)
        missing = re.fullmatch(rf"the ([a-z]+) of ({PHRASE})", reading.subject)
        assert missing
        (person,) = resolve(missing[2], read(example.context))
        has = {said.relation for said in read(example.context) if said.subject == person} & set(BOND_NAMES)
        assert all((bond == LAWYER.name) != (missing[1] == LAWYER.name) for bond in has)


def test_whose_bond_was_deleted_is_not_found_by_who_is_left() -> None:
    """In a closed ring just one person would be nobody's mentor once the sentence that says whose is gone."""
    both_ways = 0
    for example, question in asked(some(HOPS, 200)):
        if not question.answerable or question.answer_type != "person" or question.hops > 1:
            continue
        said = read(example.context)
        (told,) = [one for one in said if {one.subject, one.value} >= {question.golds[0], *subjects(example, question)}]
        if told.relation not in BOND_NAMES:
            continue
        both_ways += 1
        people = {one.subject for one in said}
        left = [one for one in said if one.relation in BOND_NAMES and one is not told]
        if question.direction == "forward":
            fitting = people - {one.value for one in left} - {told.subject}
        else:
            fitting = people - {one.subject for one in left} - {told.value}
        assert question.golds[0] in fitting
        assert len(fitting) > 1
    assert both_ways > 100


def test_a_bond_in_the_question_does_not_tell_whether_there_is_an_answer() -> None:
    shares = []
    for known in (True, False):
        chains = [
            question.text
            for _, question in asked(some(HOPS, 300))
            if question.answerable == known and not whose(question.text)
        ]
        last = [bond for text in chains for bond in re.findall(rf"the ({'|'.join(BOND_NAMES)}) of", text)[:1]]
        shares.append(last.count(LAWYER.name) / len(last))
    assert shares[0] == pytest.approx(0.5, abs=0.1)
    assert shares[1] == pytest.approx(0.5, abs=0.1)


def test_where_chains_begin_all_questions_are_forward_and_answerable() -> None:
    drawn = [q for i in range(30) for q in HOPS.example(0, i, "train", CHAINS_LEVEL).questions]
    assert {(question.direction, question.answerable) for question in drawn} == {("forward", True)}
    assert {question.hops for question in drawn} == {1, 2}
