"""The one error that a user of the generators sees, and how a mistyped name is reported."""

import difflib
from collections.abc import Iterable


class DatasetError(ValueError):
    """Something asked of the generators that they cannot do; the message is one line that says what
    to do."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Returns one line for a name that is not registered, with the nearest one that is.

    >>> unknown_name("task", "bse", ["base", "hops"])
    "unknown task 'bse': did you mean 'base'? Known: base, hops"
    >>> unknown_name("command", "submit", ["check-submission", "site"])
    "unknown command 'submit': did you mean 'check-submission'? Known: check-submission, site"
    """
    names = sorted(known)
    meant = nearest(name, names)
    return f"unknown {kind} '{name}': {meant}{'Known' if meant else 'known'}: {', '.join(names)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Asks whether the nearest known name was meant, in front of what else is to be said; empty if
    none is near."""
    names = list(known)
    # A word of a name stands for it: "submit" is nearer to "submission" than to "site".
    by_word = {word: whole for whole in names for word in whole.split("-")} | {
        whole: whole for whole in names
    }
    close = difflib.get_close_matches(name, by_word, n=1, cutoff=0.5)
    return f"did you mean '{by_word[close[0]]}'? " if close else ""
