"""Writes tables and lists in Markdown."""

from collections.abc import Iterable, Sequence

NOT_MEASURED = "–"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table with a line for each row."""
    lines = []
    for row in (header, ["---"] * len(header), *rows):
        cells = " | ".join(map(str, row))
        lines.append(f"| {cells} |")
    return "\n".join(lines)


def items(texts: Iterable[tuple[str, str]]) -> str:
    """Returns a list of names and texts, which is shorter than a table of two columns."""
    return "\n".join(f"- {name}: {text}" for name, text in texts)
