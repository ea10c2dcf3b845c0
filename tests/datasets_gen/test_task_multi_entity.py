"""The contract of task ``multi_entity``."""

import pytest

from datasets_gen.examples.example import Split
from datasets_gen.examples.lexicon import name_split
from datasets_gen.tasks.multi_entity import MULTI_ENTITY, STEM, alike
from tests.support.tasks.solvers.relations import read
from tests.support.tasks.suite import some

every_level = pytest.mark.parametrize("level", range(MULTI_ENTITY.top_level + 1))
every_split = pytest.mark.parametrize("split", ["train", "test"])


@every_split
@every_level
def test_people_are_near_identical_and_share_no_word(split: Split, level: int) -> None:
    for example in some(MULTI_ENTITY, 20, split, level):
        people = sorted({said.subject for said in read(example.context)})
        words = [word for name in people for word in name.split()]
        assert len(set(words)) == len(words)
        assert len({name.split()[1][:STEM] for name in people}) == 1
        assert {name_split(name) for name in people} == {split}
        for name in people:
            others = [other for other in people if other != name]
            assert not others or any(alike(name.split()[0], other.split()[0]) for other in others)
