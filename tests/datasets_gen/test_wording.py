"""Phrasings: what is held out from training, and that all phrasings of a meaning say as much."""

from collections.abc import Iterator
from string import Formatter
from typing import Any

from pydantic import TypeAdapter

from datasets_gen.examples.wording import Phrasings, tables


def meanings_in(table: Any) -> Iterator[Phrasings]:
    if isinstance(table, dict) and "common" in table:
        yield TypeAdapter(Phrasings).validate_python(table)
    elif isinstance(table, dict):
        for part in table.values():
            yield from meanings_in(part)


MEANINGS = {meaning.common[0]: meaning for meaning in meanings_in(tables())}
COMMON, HELD_OUT = (
    {text for meaning in MEANINGS.values() for text in getattr(meaning, part)}
    for part in ("common", "held_out")
)


def test_what_is_held_out_is_shown_nowhere_else_and_all_phrasings_of_a_meaning_say_as_much() -> (
    None
):
    assert len(HELD_OUT) > 50
    assert HELD_OUT.isdisjoint(COMMON)
    for meaning in MEANINGS.values():
        assert meaning.common
        assert meaning.held_out
        assert len(set(meaning.common)) == len(meaning.common)
        all_slots = [
            sorted(slot for _, slot, _, _ in Formatter().parse(text) if slot)
            for text in (*meaning.common, *meaning.held_out)
        ]
        assert all(slots == all_slots[0] for slots in all_slots), meaning.common[0]
