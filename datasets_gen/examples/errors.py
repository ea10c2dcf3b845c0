"""The one error that a user of the generators sees, and how a mistyped name is reported."""

import difflib
from collections.abc import Iterable


class DatasetError(ValueError):
    """Something asked of the generators that they cannot do; the message is one line that says what to do."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Returns one line for a name that is not registered, with the nearest one that is.

    >>> unknown_name("task", "bse", ["base", "hops"])
    "unknown task 'bse': did you mean 'base'? Known: base, hops"
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"unknown {kind} '{name}': {hint}Known: {', '.join(names)}"
