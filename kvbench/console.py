"""Where messages to people go: standard error, so that standard output holds results alone."""

from rich.console import Console

console = Console(stderr=True, highlight=False, markup=False)


def printable(text: str) -> str:
    """Text of strangers, of the same length, with nothing in it that a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\N{MIDDLE DOT}" for letter in text)
