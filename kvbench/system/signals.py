"""Handles Ctrl-C, and SIGTERM as Ctrl-C, once and not in the middle of a write."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 2.0  # seconds within which a second press is the first one said twice
ENDING = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what Slurm, Kubernetes and kill send


class Interrupts:
    """Answers signals that end a command.

    Python raises KeyboardInterrupt wherever it is. While things are being taken down that shows as a traceback, and in
    a destructor, such as those of a file that is being written, it is printed and then forgotten.
    """

    def __init__(self) -> None:
        self._last = float("-inf")
        self._holding = False
        self._pending = False

    def install(self) -> None:
        for one in ENDING:
            signal.signal(one, lambda *_: self.interrupt())

    def interrupt(self) -> None:
        """Raises KeyboardInterrupt, unless that has just been done, or at the end of :meth:`held`."""
        if self._holding:
            self._pending = True
        elif time.monotonic() - self._last > PATIENCE:
            self._last = time.monotonic()
            raise KeyboardInterrupt

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Puts an interrupt off until the body has ended."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending:
            self._pending = False
            self.interrupt()


INTERRUPTS = Interrupts()


def leave_to_parent() -> None:
    """Lets this process ignore such signals, which reach all processes of a terminal or a job: its parent, which is
    interrupted too, ends it. Also for a process whose work is done, as Python's own end would answer with a
    traceback."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
