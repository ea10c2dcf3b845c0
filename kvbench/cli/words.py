"""Checks the words of a command, and the values that a call of the library has in their place."""

import re
import sys
from collections.abc import Iterable

from kvbench.system.console import is_visible
from kvbench.system.errors import KVBenchError

LONGEST_WORD = 20_000  # characters: the names of all policies, with options, are fewer
# Of a bucket or a server: Path would make a folder of it.
ADDRESS = re.compile(r"(?:^|[=,\s])([A-Za-z][\w+.-]+):/")
OF_CLUSTER = "--executor"  # the option that takes another address than a path
OF_SERVER, SCHEMES = "--model", ("http", "https")  # likewise, of these kinds
LARGEST, LEAST = 1e15, 1e-15  # of a number: squares and products of such numbers are finite


def check_words(words: Iterable[str]) -> None:
    """Raises :class:`KVBenchError` for a word that cannot be shown, an address in place of a path,
    or a number that cannot be computed with."""
    former = ""
    for word in words:
        option = former
        if word.startswith("--"):
            option = word.partition("=")[0]
        check_word(word, option)
        former = word


def check_word(word: str, option: str = "") -> None:
    """Raises :class:`KVBenchError` for such a word. ``option``: which it is the value of; that of a
    cluster, or of a server, may be an address."""
    _check_letters(word)
    address = ADDRESS.search(word)
    may_be_address = option == OF_CLUSTER
    if address and option == OF_SERVER:
        may_be_address = address[1].lower() in SCHEMES
    if address and not may_be_address:
        where = "kvbench reads and writes the file system of this machine alone"
        reason = f"an address of {address[1]}: {where}"
        raise KVBenchError(f"'{word}' is {reason}; give a path, or copy it there first")
    try:
        size = abs(float(word))
    except ValueError:
        return
    if size > LARGEST or 0 < size < LEAST:
        advice = f"give 0, or a number from {LEAST:g} to {LARGEST:g}"
        raise KVBenchError(f"{word} cannot be computed with: {advice}")


def check_interpreter() -> None:
    """Raises :class:`KVBenchError` where Python leaves out what libraries need."""
    if sys.flags.optimize:
        # transformers builds classes from docstrings, and kvpress asserts that a press can do what
        # it is asked.
        reason = (
            "python -O and PYTHONOPTIMIZE take out assertions and docstrings, "
            "which kvpress and transformers need"
        )
        raise KVBenchError(f"{reason}: start python without them")


def _check_letters(word: str) -> None:
    """Raises :class:`KVBenchError` for a word that is too long, or that cannot be shown."""
    if len(word) > LONGEST_WORD:
        length = f"{len(word):,} characters, more than the {LONGEST_WORD:,} that are read"
        raise KVBenchError(f"'{word}' has {length}")
    for letter in word:
        if not is_visible(letter):
            code = f"U+{ord(letter):04X}"
            raise KVBenchError(f"'{word}' holds the character {code}, which cannot be shown")
