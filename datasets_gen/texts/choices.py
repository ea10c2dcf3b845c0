"""Reads the options that a question lists: "A) Breveth B) Ambrova"."""

from collections.abc import Mapping
from functools import lru_cache

import regex

from datasets_gen.texts.folding import FLAGS

_MARK = regex.compile(r"(?:(?<=^|\s)\(?|(?<=[:：]))([A-Z])(?:[).．）、]|:(?=\s))\s*", FLAGS)
# One letter with a mark is an initial.
FEWEST = 2


@lru_cache(maxsize=4096)
def options_in(question: str) -> Mapping[str, str]:
    """Returns the options of a question by their letters in small letters; none where it lists
    none.

    >>> options_in("Where? A) Breveth B) Ambrova"), options_in("(A) 3 (B) 4")
    ({'a': 'Breveth', 'b': 'Ambrova'}, {'a': '3', 'b': '4'})
    >>> options_in("Who is A. Falbrook?")
    {}
    """
    marks = list(_MARK.finditer(question))
    if len(marks) < FEWEST:
        return {}
    ends = [*(mark.start() for mark in marks[1:]), len(question)]
    options: dict[str, str] = {}
    for number, (mark, end) in enumerate(zip(marks, ends, strict=True)):
        # Options may stand in one line, with commas or semicolons between them.
        text = question[mark.end() : end].strip(" \n\t,;.")
        # In order from A: other capital letters with a point are initials, as in "A. or C. Hale".
        if mark[1] != chr(ord("A") + number) or not text:
            return {}
        options[mark[1].lower()] = text
    return options


def _letter_of_text(gold: str, options: Mapping[str, str]) -> str:
    """Returns the letter of the option whose text a gold is, in small letters; empty for none."""
    for letter, text in options.items():
        if text.casefold() == gold.casefold():
            return letter
    return ""


def other_options(gold: str, letter: str, options: Mapping[str, str]) -> list[str]:
    """Returns what names another option than the right one: its letter or its text."""
    right = letter or _letter_of_text(gold, options)
    if right not in options:
        return []
    names = []
    for key, text in options.items():
        # The letter of another option is a wrong answer, and so is its text.
        if key != right:
            names += [key.upper(), text]
    return names


def same_option(gold: str, letter: str, options: Mapping[str, str]) -> str:
    """Returns the other name of the option that a gold is: its text for its letter, its letter for
    its text."""
    if letter:
        return options.get(letter, "")
    return _letter_of_text(gold, options).upper()
