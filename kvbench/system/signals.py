"""Handles Ctrl-C once, and not in the middle of a write."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 2.0  # seconds within which a second press is the first one said twice


class Interrupts:
    """Answers SIGINT while a command runs.

    Python raises KeyboardInterrupt wherever it is. While things are being taken down that shows as a traceback, and in
    a destructor, such as those of a file that is being written, it is printed and then forgotten.
    """

    def __init__(self) -> None:
        self._last = float("-inf")
        self._holding = False
        self._pending = False

    def install(self) -> None:
        signal.signal(signal.SIGINT, lambda *_: self.interrupt())

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
