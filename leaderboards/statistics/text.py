"""Turns numbers into text: the one way in which pages, terminals and tables for print write
them."""

import math

HALF_AWAY = 1e-9  # moves nothing but a half


def interval_text(interval: tuple[float, float] | None, factor: float = 1, digits: int = 0) -> str:
    """Writes both ends with a dash between them.

    >>> interval_text((0.25, 0.5), factor=100)
    '25–50'
    >>> interval_text((-0.2, 0.7))  # never minus zero
    '0–1'
    """
    if interval is None:
        return "–"
    return "–".join(f"{end * factor:z.{digits}f}" for end in interval)


def ends_text(interval: tuple[float, float] | None, factor: float = 1, digits: int = 0) -> str:
    """Writes the ends of the interval of a difference with their signs; nothing for none.

    >>> ends_text((-0.25, 0.5), factor=100), ends_text((-0.001, 0.2), digits=1)
    ('[−25, +50]', '[0.0, +0.2]')
    """
    if interval is None:
        return ""
    ends = [signed_text(end * factor, digits) for end in interval]
    return f"[{', '.join(ends)}]"


def signed_text(number: float, digits: int) -> str:
    """Writes a number with its sign, the typographic minus, which is as wide as a digit. What is
    rounded to zero has none: “+0” would read as a gain.

    >>> signed_text(-12.5, 0), signed_text(12.5, 0), signed_text(-0.01, 1)
    ('−13', '+13', '0.0')
    """
    text = f"{rounded(number, digits):+z.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("+")
    return text.replace("-", "−")


def rounded(number: float, digits: int) -> float:
    """Rounds a number, and a half away from zero: to the even number, 3 and 9 contexts of 24 would
    read as 12 and 38 points."""
    return round(number + math.copysign(HALF_AWAY, number), digits)


def range_text(low: object, high: object) -> str:
    """Writes both ends with a word between them, and one alone where they read alike.

    >>> range_text(3, 5), range_text("4", "4")
    ('3 to 5', '4')
    """
    return " to ".join(dict.fromkeys((str(low), str(high))))


def p_text(p: float) -> str:
    """Writes a p-value with three digits; none is written as 0."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_equation(p: float) -> str:
    """Writes a p-value with its name, as in a sentence."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def count_text(number: int, noun: str) -> str:
    """Writes a count with its noun.

    >>> count_text(1, "context"), count_text(1200, "context")
    ('1 context', '1,200 contexts')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"
