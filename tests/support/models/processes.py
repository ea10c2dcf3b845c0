"""Other processes that tests start: whether they run, and how to wait for them."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for it on a slow machine too: five minutes mean that it never comes."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for five minutes")


def is_running(process: int) -> bool:
    """Whether it is there and no zombie, which only waits for whoever adopted it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
