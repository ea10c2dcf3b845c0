"""The contract of task ``coreference``."""

import re
from collections import Counter

import pytest

from datasets_gen.tasks.coreference import COREFERENCE, SIZES
from tests.support.tasks.solvers.coreference import read
from tests.support.tasks.solvers.text import NAME
from tests.support.tasks.suite import every_way, some

LEVELS = range(COREFERENCE.top_level + 1)
every_level = pytest.mark.parametrize("level", LEVELS)


def kind(mention: str) -> str:
    if re.fullmatch(NAME, mention):
        return "name"
    return "description" if mention.lower().startswith("the ") else "pronoun"


@every_level
def test_every_reference_means_one_person(level: int) -> None:
    for example in every_way(COREFERENCE, level=level):
        assert all(said.subject for said in read(example.context)), example.context


@every_level
def test_each_level_uses_the_references_that_it_teaches(level: int) -> None:
    mentions = Counter(
        kind(said.mention)
        for example in some(COREFERENCE, 100, level=level)
        for said in read(example.context)
    )
    assert set(mentions) == {"name", *SIZES[level].references}
    if level == COREFERENCE.top_level:
        assert 0.6 < 1 - mentions["name"] / mentions.total() < 0.75
        assert min(mentions.values()) > 0.2 * mentions.total()
