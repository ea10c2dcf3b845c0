"""Parts of what is numbered, such as the layers of a model, as options of treatments name them:
``[0,2,4-6]``, ``2-``, ``Q3``."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from policies.declaration.names import PolicyError

PARTS = {"H": 2, "Q": 4}  # halves and quarters of the layers: H1, H2, Q1 to Q4
NUMBERS = r"all|\d{1,4}(-\d{0,4})?"  # indices and ranges; one without an end goes to the last
LAYERS = rf"{NUMBERS}|H[12]|Q[1-4]"


def _split(text: Any) -> Any:
    """Splits ``[0,2,5-7]``, or one part without brackets. Their order means nothing."""
    if not isinstance(text, str):
        return text
    parts = {part.strip() for part in text.strip("[]").split(",")}
    return tuple(sorted(parts, key=_first_number))


def _first_number(part: str) -> tuple[int, str]:
    start = part.partition("-")[0]
    return (int(start) if start.isdecimal() else -1, part)


Parts = Annotated[tuple[str, ...], BeforeValidator(_split)]


def check_layers(parts: Sequence[str]) -> None:
    """Raises :class:`ValueError` for parts that name no layers."""
    _check("layers", parts, LAYERS, ", quarters as Q3, halves as H1")


def check_heads(parts: Sequence[str]) -> None:
    """Raises :class:`ValueError` for parts that name no heads."""
    _check("heads", parts, NUMBERS, "")


def _check(name: str, parts: Sequence[str], pattern: str, also: str) -> None:
    for part in parts:
        if not re.fullmatch(pattern, part):
            raise ValueError(f"{name}={part}: give indices as 0 or [0,2,4-6]{also}")


def chosen(
    name: str, parts: Sequence[str], count: int, whose: str = "the model"
) -> tuple[int, ...]:
    """Lists the numbers that some parts name of ``count``; raises :class:`PolicyError` for one that
    is not there.

    ``name``: the word for one of what is numbered, such as ``layer``.
    """
    numbers = set[int]()
    for part in parts:
        if part == "all":
            numbers.update(range(count))
        elif part[0] in PARTS:
            divisor = PARTS[part[0]]
            number = int(part[1]) - 1
            # Rounded down at both ends: parts differ by one layer at most, and together are all.
            start = number * count // divisor
            end = (number + 1) * count // divisor
            numbers.update(range(start, end))
        else:
            first, dash, text = part.partition("-")
            last = int(text or (count - 1 if dash else first))
            if last >= count or int(first) >= count:
                raise PolicyError(f"{name}s={part}: {whose} has {count} {name}s, 0 to {count - 1}")
            numbers.update(range(int(first), last + 1))
    return tuple(sorted(numbers))
