"""Checks what was typed, in one place for all commands: the characters of words, the size of numbers, and paths."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kvbench.system.console import is_visible
from kvbench.system.errors import KVBenchError
from kvbench.system.places import is_place, is_remote

LONGEST = 20_000  # characters of a word: the names of all policies, with options, are fewer
LARGEST, LEAST = 10**15, 1e-15  # of a number: squares and products of such numbers are finite


def check_words(words: Iterable[str]) -> None:
    """Raises :class:`KVBenchError` for a word that no file, table or terminal can take."""
    for word in words:
        if len(word) > LONGEST:
            raise KVBenchError(f"'{word}' has {len(word):,} characters, more than the {LONGEST:,} that are read")
        if strange := next((letter for letter in word if not is_visible(letter)), None):
            raise KVBenchError(
                f"'{word}' holds the character U+{ord(strange):04X}, which cannot be shown: type it again, or rename "
                "what it names"
            )


def check_values(values: Mapping[str, Any]) -> None:
    """Raises :class:`KVBenchError` for a number that cannot be computed with, and a path that leads nowhere. ``values``
    are those of a command's parameters, by name."""
    for parameter, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int | float):
                _check_number(parameter, one)
            elif is_place(one) and not is_remote(one):
                _check_path(one)


def _check_number(parameter: str, number: float) -> None:
    if LARGEST < abs(number) < float("inf") or 0 < abs(number) < LEAST:
        raise KVBenchError(
            f"--{parameter.replace('_', '-')} {number} cannot be computed with: give 0, or a number whose size is "
            f"between {LEAST:g} and {LARGEST:g}"
        )


def _check_path(path: Path) -> None:
    if str(path).startswith("~"):
        raise KVBenchError(f"{path}: the shell leaves ~ as it is here: write the whole path")
    try:
        path.resolve().exists()
    except (OSError, RuntimeError) as error:  # a link that leads to itself, a name that is too long
        reason = getattr(error, "strerror", None) or "its links lead in a circle"
        raise KVBenchError(f"{path} is no path ({reason}): name another") from error
