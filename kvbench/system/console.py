"""Messages to people go to standard error, so that standard output holds results alone."""

from rich.console import Console

console = Console(stderr=True, highlight=False, markup=False)


def printable(text: str) -> str:
    """Replaces every character that a terminal could take for a command; the length stays."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\N{MIDDLE DOT}" for letter in text)
