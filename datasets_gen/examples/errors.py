"""The one error that a user of the generators sees, and how a mistyped name is reported."""

import difflib
from collections.abc import Iterable


class DatasetError(ValueError):
    """Something asked of the generators that they cannot do; the message is one line that says what
    to do."""


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """Returns one line for a name that is not registered, with the nearest one that is.

    >>> unknown_name("task", "bse", ["base", "hops"])
    "unknown task 'bse': did you mean 'base'? Known: base, hops"
    >>> unknown_name("command", "submit", ["check-submission", "site"])
    "unknown command 'submit': did you mean 'check-submission'? Known: check-submission, site"
    """
    in_order = sorted(names)
    meant = nearest(name, in_order)
    begin = "Known" if meant else "known"
    return f"unknown {kind} '{name}': {meant}{begin}: {', '.join(in_order)}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Asks whether the nearest of the names was meant, in front of what else is to be said; empty
    if none is near."""
    names = list(names)
    # A word of a name stands for it: "submit" is nearer to "submission" than to "site".
    by_word: dict[str, str] = {}
    for whole in names:
        by_word |= dict.fromkeys(whole.split("-"), whole)
    # Whole names come last: a word of one may be the name of another.
    for whole in names:
        by_word[whole] = whole
    close = difflib.get_close_matches(name, by_word, n=1, cutoff=0.5)
    return f"did you mean '{by_word[close[0]]}'? " if close else ""
