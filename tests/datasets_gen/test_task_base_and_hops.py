"""Tasks ``base`` and ``hops``: what they ask, and what they do not."""

from datasets_gen.tasks.base import BASE
from tests.support.tasks.solvers.relations import read, read_question
from tests.support.tasks.suite import asked, some


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
