"""Messages to people go to standard error, so that standard output holds results alone."""

import codecs
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment

from policies.declaration.lazy import LazyModule


def is_visible(letter: str) -> bool:
    """Tells whether a terminal shows a character: it could take others for a command."""
    return letter.isprintable() or letter in "\n\t"


def printable(text: str) -> str:
    """Replaces every character that is not visible; the length stays."""
    if text.isprintable():
        return text
    return "".join(letter if is_visible(letter) else "\N{MIDDLE DOT}" for letter in text)


# What a terminal without it shows instead: a question mark before a number would hide that it is a
# loss.
LIKE = {
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{MIDDLE DOT}": ".",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{PLUS-MINUS SIGN}": "+-",
    "\N{ALMOST EQUAL TO}": "~",
    "\N{RIGHTWARDS ARROW}": "->",
}


def _replaced_characters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(LIKE.get(letter, "?") for letter in missing), error.end


def write_any_character() -> None:
    """Lets standard output and error write what their encoding lacks, as something like it, in
    place of an error."""
    codecs.register_error("kvbench", _replaced_characters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="kvbench")


def can_write(text: str) -> bool:
    """Tells whether the encoding of standard output has every character of a text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


class SafeConsole(Console):
    """Prints whatever it is given, texts of strangers too, without a command to the terminal in
    it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, *renderable: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*renderable, **options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


console = SafeConsole(stderr=True)
ipython = LazyModule("IPython.display")  # which a notebook alone has
HALF_A_SECOND = 0.5  # between two lines of a notebook
PATIENCE = 30.0  # seconds without a line, after which a log gets the next one
FEW_SECONDS = 5.0  # between two lines, at least
TENTH, HUNDREDTH = 0.1, 0.01  # of all work: what is worth a line soon, and what is worth one at all


class ProgressLines(Progress):
    """Writes lines into a log, where no bar can be drawn: behind each tenth of the work, or after
    half a minute.

    Of work that takes days, a line stands behind each hundredth. ``is_kept``: a last line tells the
    end.
    """

    def __init__(self, is_kept: bool, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(console=console, disable=True)
        self._is_kept = is_kept
        self._clock = clock
        self._started = self._last_time = clock()
        self._last_share = 0.0

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        """Prints a line where enough was done since the last one."""
        task = self._tasks[task_id]
        total = task.total or 1.0
        share, now = task.completed / total, self._clock()
        waited, done = now - self._last_time, share - self._last_share
        is_soon = done >= TENTH and waited >= FEW_SECONDS
        is_late = done >= HUNDREDTH and waited >= PATIENCE
        is_end = share >= 1
        is_due = self._is_kept if is_end else is_soon or is_late
        if not is_due:
            return
        self._last_time, self._last_share = now, share
        spent = now - self._started
        times = f"in {_clock_text(spent)}"
        if not is_end:
            left = spent / share - spent
            times = f"{_clock_text(spent)} so far, about {_clock_text(left)} left"
        counts = f"{task.completed:,.0f} of {task.total:,.0f} ({share:.0%})"
        console.print(f"{task.description}: {counts}, {times}", soft_wrap=True)


class ProgressInNotebook(ProgressLines):
    """Writes how far the work is into one line below a cell, which it writes anew."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(is_kept=True, clock=clock)
        self._handle: Any = None

    def _tell(self, task_id: TaskID) -> None:
        task, now = self._tasks[task_id], self._clock()
        is_end = task.completed >= (task.total or 1.0)
        if now - self._last_time < HALF_A_SECOND and not is_end:
            return
        self._last_time = now
        spent = _clock_text(now - self._started)
        line = f"{task.description} {task.completed:,.0f}"
        if task.total:
            line += f" of {task.total:,.0f}"
        content = {"text/plain": f"{line}, {spent}"}
        if self._handle is None:
            self._handle = ipython.display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _clock_text(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def progress_bar(is_kept: bool = False) -> Progress:
    """Returns a bar that a terminal shows while something takes long; a file gets lines.
    ``is_kept``: the bar stays."""
    if console.is_jupyter:
        return ProgressInNotebook()
    if not console.is_terminal:
        return ProgressLines(is_kept)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=not is_kept,
    )


def warn(text: str) -> None:
    """Prints a warning, also for a command that is told to be quiet: it may change what a result
    means."""
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
