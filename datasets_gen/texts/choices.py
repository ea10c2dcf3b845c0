"""Reads the options that a question lists: "A) Breveth B) Ambrova"."""

from collections.abc import Mapping
from functools import lru_cache

import regex

from datasets_gen.texts.folding import FLAGS

_MARK = regex.compile(r"(?:(?<=^|\s)\(?|(?<=[:：]))([A-Z])(?:[).．）、]|:(?=\s))\s*", FLAGS)
FEWEST = 2


@lru_cache(maxsize=4096)
def options_in(question: str) -> Mapping[str, str]:
    """Returns the options of a question by their letters in small letters; none where it lists none.

    >>> options_in("Where? A) Breveth B) Ambrova"), options_in("(A) 3 (B) 4")
    ({'a': 'Breveth', 'b': 'Ambrova'}, {'a': '3', 'b': '4'})
    >>> options_in("Who is A. Falbrook?")
    {}
    """
    marks = list(_MARK.finditer(question))
    expected = [match for number, match in enumerate(marks) if match[1] == chr(ord("A") + number)]
    if len(expected) < FEWEST or len(expected) < len(marks):
        return {}
    ends = [*(match.start() for match in marks[1:]), len(question)]
    texts = (
        question[match.end() : end].strip(" \n\t,;.")
        for match, end in zip(marks, ends, strict=True)
    )
    options = {match[1].lower(): text for match, text in zip(marks, texts, strict=True)}
    return options if all(options.values()) else {}


def other_options(gold: str, letter: str, options: Mapping[str, str]) -> list[str]:
    """Returns what names another option than the right one: its letter or its text."""
    right = letter or next(
        (key for key, text in options.items() if text.casefold() == gold.casefold()), ""
    )
    if right not in options:
        return []
    return [name for key, text in options.items() if key != right for name in (key.upper(), text)]


def same_option(gold: str, letter: str, options: Mapping[str, str]) -> str:
    """Returns the other name of the option that a gold is: its text for its letter, its letter for its text."""
    if letter:
        return options.get(letter, "")
    return next(
        (key.upper() for key, text in options.items() if text.casefold() == gold.casefold()), ""
    )
