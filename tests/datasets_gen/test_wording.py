"""Phrasings: what is held out, what training alone shows, and sentences of no template, whose meaning is still said."""

import re
from collections.abc import Iterator
from string import Formatter
from typing import Any

import pytest
from pydantic import TypeAdapter

from datasets_gen import TASKS
from datasets_gen.examples.wording import Phrasings, tables


def meanings_in(table: Any) -> Iterator[Phrasings]:
    if isinstance(table, dict) and "common" in table:
        yield TypeAdapter(Phrasings).validate_python(table)
    elif isinstance(table, dict):
        for part in table.values():
            yield from meanings_in(part)


MEANINGS = {meaning.common[0]: meaning for meaning in meanings_in(tables())}
COMMON, HELD_OUT, TAUGHT = (
    {text for meaning in MEANINGS.values() for text in getattr(meaning, part)}
    for part in ("common", "held_out", "taught")
)


def test_what_is_held_out_is_shown_nowhere_else_and_all_phrasings_of_a_meaning_say_as_much() -> None:
    assert len(HELD_OUT) > 50
    assert HELD_OUT.isdisjoint(COMMON | TAUGHT)
    for meaning in MEANINGS.values():
        assert meaning.common
        assert meaning.held_out
        assert len({*meaning.common, *meaning.taught}) == len(meaning.common) + len(meaning.taught)
        all_slots = [
            sorted(slot for _, slot, _, _ in Formatter().parse(text) if slot)
            for text in (*meaning.common, *meaning.held_out, *meaning.taught)
        ]
        assert all(slots == all_slots[0] for slots in all_slots), meaning.common[0]


@pytest.mark.parametrize("name", TASKS)
def test_only_training_from_the_second_level_on_sees_what_is_taught(name: str) -> None:
    patterns = [re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(text))) for text in TAUGHT - COMMON]
    patterns = [one for one in patterns if not any(one.fullmatch(text) for text in COMMON | HELD_OUT)]

    def seen(level: int | None = None, **how: bool) -> int:
        """Counts the questions in a phrasing that is taught."""
        examples = [TASKS[name].example(1, index, "train", level, **how) for index in range(15)]
        texts = [question.text for example in examples for question in example.questions]
        return sum(any(pattern.fullmatch(text) for pattern in patterns) for text in texts)

    assert seen(taught=True) > 5
    assert seen() == seen(held_out=True) == seen(0, taught=True) == 0
