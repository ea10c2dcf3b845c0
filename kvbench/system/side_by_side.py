"""Runs two functions at the same time: one in this process, the other in a copy of it that shares its memory."""

import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from kvbench.system.signals import INTERRUPTS, leave_to_parent

Here = TypeVar("Here")
Beside = TypeVar("Beside")


def side_by_side(here: Callable[[], Here], beside: Callable[[], Beside]) -> tuple[Here, Beside]:
    """Returns what both functions return; the result of ``beside`` has to be one that can be pickled. Where this
    process cannot be copied, ``beside`` runs in it after ``here``."""
    if not _can_be_copied():
        return here(), beside()
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    copy = context.Process(target=_answer, args=(sender, beside), daemon=True)
    with INTERRUPTS.hold():
        copy.start()
    sender.close()
    try:
        first = here()
        error, second = receiver.recv()
    except BaseException:
        copy.kill()
        raise
    finally:
        copy.join()
    if error is not None:
        raise error
    return first, second


def _can_be_copied() -> bool:
    """Tells whether a fork is safe and of use: torch's threads and devices do not survive one."""
    return sys.platform == "linux" and "torch" not in sys.modules and len(os.sched_getaffinity(0)) > 1


def _answer(sender: Connection, function: Callable[[], object]) -> None:
    """Runs in the copy, and sends an error or a result."""
    leave_to_parent()
    try:
        sender.send((None, function()))
    except Exception as error:
        sender.send((error, None))
