"""Turns numbers into text: the one way in which pages, terminals and tables for print write
them."""


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
    ends = []
    for end in interval:
        text = f"{end * factor:+z.{digits}f}"
        # “+0” would read as a gain.
        if float(text) == 0:
            text = text.removeprefix("+")
        ends.append(text.replace("-", "−"))
    return f"[{', '.join(ends)}]"


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
