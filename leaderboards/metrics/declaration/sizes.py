"""Writes a number of bytes, on pages, in docs and in the terminal."""

UNITS = ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB"))


def size_text(count: float | None) -> str:
    """Returns a number of bytes in decimal units, with three digits or more; a dash for none.

    >>> size_text(1_234_567)
    '1.23 MB'
    """
    if count is None:
        return "–"
    for power, unit in UNITS:
        if count >= 10**power:
            size = count / 10**power
            return f"{size:,.{2 if size < 10 else 1 if size < 100 else 0}f} {unit}"
    return f"{count:.0f} B"
