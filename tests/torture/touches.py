"""Aims at places of a run: the moments at which it makes, opens, renames or removes a file of a folder."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

TOUCHES = ("open", "os.mkdir", "os.remove", "os.rename", "tempfile.mkstemp")
WRITING = os.O_WRONLY | os.O_RDWR


def at_touch(number: float, folder: Path, act: Callable[[], object], again: bool = False) -> None:
    """Has this process do something before it touches files of a folder for a time of that number, and, if ``again``,
    before each later one. An error that is raised there is that of the touch. It lasts until the process ends."""
    touches = 0

    def hook(event: str, given: tuple[object, ...]) -> None:
        nonlocal touches
        if event not in TOUCHES or not str(given[0]).startswith(str(folder)):
            return
        if event == "open" and not (isinstance(given[2], int) and given[2] & WRITING):
            return
        touches += 1
        if touches == number or (again and touches > number):
            act()

    sys.addaudithook(hook)
