"""A limit for the time that a press takes: a press that exceeds it has failed."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from policies.declaration.faults import FOREIGN_SECONDS, time_bound

CELL_SECONDS = FOREIGN_SECONDS
TIMES = 3
MOMENT = 1e-3  # seconds


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
        """Raises :class:`TookTooLongError` in the call inside once its time is up, less what was ``spent``."""
        seconds, reason = self.seconds - spent, f"it took longer than {self.seconds:g} s (--cell-seconds)"
        if self._exceeded[policy] >= TIMES:
            seconds, reason = MOMENT, f"given up: {reason} {TIMES} times before"
        started, bound = time.monotonic(), max(seconds, MOMENT)
        try:
            with time_bound(bound, reason):
                yield
        finally:
            self._exceeded[policy] += time.monotonic() - started >= bound
