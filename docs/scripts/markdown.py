"""Writes tables and lists in Markdown."""

from collections.abc import Iterable, Sequence

NOT_MEASURED = "–"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table with a line for each row."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def items(of_name: Iterable[tuple[str, str]]) -> str:
    """Returns a Markdown list of what names stand for, which is shorter than a table of two
    columns."""
    return "\n".join(f"- {name}: {text}" for name, text in of_name)
