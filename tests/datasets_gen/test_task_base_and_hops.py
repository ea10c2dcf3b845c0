"""Tasks ``base`` and ``hops``: what they ask, and what they do not."""

import re

from datasets_gen.tasks.base import BASE
from datasets_gen.tasks.hops import HOPS
from datasets_gen.writing.passage import BONDS, LAWYER
from tests.support.tasks.solvers.relations import PHRASE, read, read_question, resolve
from tests.support.tasks.suite import asked, some

BOND_NAMES = tuple(bond.name for bond in BONDS)


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
