"""Messages to people go to standard error, so that standard output holds results alone."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment


def is_visible(letter: str) -> bool:
    """Tells whether a terminal shows a character: it could take others for a command."""
    return letter.isprintable() or letter in "\n\t"


def printable(text: str) -> str:
    """Replaces every character that is not visible; the length stays."""
    return text if text.isprintable() else "".join(one if is_visible(one) else "\N{MIDDLE DOT}" for one in text)


class SafeConsole(Console):
    """Prints whatever it is given, texts of strangers too, without a command to the terminal in it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, *renderable: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*renderable, **options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


console = SafeConsole(stderr=True)


def progress_bar(is_kept: bool = False) -> Progress:
    """Returns a bar that a terminal shows while something takes long. ``is_kept``: it stays, in a log too."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn())
    disable = not (is_kept or console.is_terminal)
    return Progress(*columns, *left, console=console, disable=disable, transient=not is_kept)


def warn(text: str) -> None:
    """Prints a warning, also for a command that is told to be quiet: it may change what a result means."""
    with replaced(console, "quiet", False):
        console.print(text, style="yellow", soft_wrap=True)


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Gives an attribute, of any object, another value inside a ``with`` block."""
    former = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former)
