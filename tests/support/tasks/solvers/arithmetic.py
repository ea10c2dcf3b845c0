"""A reader of `arithmetic` stories: it acts them out, sentence by sentence, and knows nothing of
how they were made."""

from dataclasses import dataclass
from functools import cache

from datasets_gen.tasks.arithmetic import EVENTS, QUESTIONS, START
from tests.support.tasks.solvers.text import NAME, matches, sentences

SLOTS = {"subject": NAME, "other": NAME, "number": r"\d+", "size": r"\d+", "item": "[a-z]+"}


@dataclass(frozen=True)
class Event:
    """What a sentence tells; ``kind`` is ``start`` or the name of an event."""

    kind: str
    words: dict[str, str]


@cache
def event(sentence: str) -> Event:
    """What a sentence tells; it must be readable in one way only."""
    readings = [
        Event(kind, words)
        for kind, phrasings in {"start": START, **EVENTS}.items()
        for _, words in matches(phrasings, sentence, **SLOTS)
    ]
    assert len(readings) == 1, f"{sentence!r} reads as {readings}"
    return readings[0]


def acted_out(story: list[Event]) -> dict[tuple[str, str], int]:
    """How many of each item everyone has at the end; who starts with an unknown number is left
    out."""
    has: dict[tuple[str, str], int] = {}
    for told in story:
        words = told.words
        number, item = int(words["number"]), words["item"]
        mine, theirs = (words["subject"], item), (words.get("other", ""), item)
        if told.kind == "start":
            assert mine not in has
            has[mine] = number
        if mine in has:
            match told.kind:
                case "gain":
                    has[mine] += number
                case "loss" | "gift":
                    has[mine] -= number
                case "packs":
                    has[mine] += sum(int(words["size"]) for _ in range(number))
                case "times":
                    has[mine] *= number
        if told.kind == "gift" and theirs in has:
            has[theirs] += number
        assert told.kind in ("start", *EVENTS)
    return has


def solve(question: str, context: str) -> set[str]:
    """The number that the story gives, nothing if it does not say what the person starts with."""
    asked = [words for _, words in matches(QUESTIONS, question, **SLOTS)]
    assert len(asked) == 1, f"{question!r} reads in {len(asked)} ways"
    key = (asked[0]["subject"], asked[0]["item"])
    has = acted_out([event(sentence) for sentence in sentences(context)])
    return {str(has[key])} if key in has else set()
