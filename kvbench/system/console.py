"""Messages to people go to standard error, so that standard output holds results alone."""

from rich.console import Console

console = Console(stderr=True, highlight=False, markup=False, emoji=False)


def warn(text: str) -> None:
    """Prints a warning, also for a command that is told to be quiet: it may change what a result means."""
    quiet, console.quiet = console.quiet, False
    try:
        console.print(printable(text), style="yellow", soft_wrap=True)
    finally:
        console.quiet = quiet


def printable(text: str) -> str:
    """Replaces every character that a terminal could take for a command; the length stays."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\N{MIDDLE DOT}" for letter in text)
