"""A limit for the time that a press takes: a press that exceeds it has failed."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CELL_SECONDS = 60.0
TIMES = 3
MOMENT = 1e-3  # seconds


class TookTooLongError(Exception):
    """A press exceeded its time limit."""


class TimeLimit:
    """Limits the time that a press takes with one context.

    A press that exceeded it :data:`TIMES` times gets only a moment from then on, because one that hangs would hold up a
    run for hours. Each worker process counts for itself.
    """

    def __init__(self, seconds: float = CELL_SECONDS) -> None:
        self.seconds = seconds
        self._exceeded: Counter[str] = Counter()  # by name of the policy

    @contextmanager
    def for_call(self, policy: str, spent: float = 0.0) -> Iterator[None]:
        """Raises :class:`TookTooLongError` in the call that runs inside once its time is up, less what was ``spent``.

        It works in the main thread of a process only, where signals arrive, and interrupts Python, but no operation of
        torch.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        seconds, reason = self.seconds - spent, f"it took longer than {self.seconds:g} s (--cell-seconds)"
        if self._exceeded[policy] >= TIMES:
            seconds, reason = MOMENT, f"given up: {reason} {TIMES} times before"

        def interrupt(*_: Any) -> None:
            self._exceeded[policy] += 1
            raise TookTooLongError(reason)

        previous = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, MOMENT))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
