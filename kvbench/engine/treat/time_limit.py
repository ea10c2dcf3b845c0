"""How long a press may take: what it exceeds is its own failure."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CELL_SECONDS = 60.0
TIMES = 3
MOMENT = 1e-3  # seconds


class TookTooLongError(Exception):
    """A press ran into its time bound."""


class Patience:
    """How long a press may take with one context. One that took longer ``times`` times is given a moment only from then
    on, or a press that hangs would hold up a run for hours; each worker process counts for itself."""

    def __init__(self, seconds: float = CELL_SECONDS, times: int = TIMES) -> None:
        self.seconds = seconds
        self.times = times
        self._exceeded: Counter[str] = Counter()

    @contextmanager
    def with_press(self, policy: str, spent: float = 0.0) -> Iterator[None]:
        """Raises :class:`TookTooLongError` in what runs inside when the time, less what was ``spent``, is up; again and
        again where that is caught.

        Only in the main thread of a process, where signals arrive; Python alone is interrupted, not an operation of
        torch.
        """
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
            yield
            return
        lost = self._exceeded[policy] >= self.times
        reason = f"it took longer than {self.seconds:g} s (--cell-seconds)"
        rings = 0

        def ring(_: int, __: FrameType | None) -> None:
            nonlocal rings
            rings += 1
            raise TookTooLongError(f"given up: {reason} {self.times} times before" if lost else reason)

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, MOMENT if lost else max(self.seconds - spent, MOMENT), 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self._exceeded[policy] += rings > 0
