"""Sets this process up: its memory for long work on a CPU, and how it ends."""

import ctypes
import gc
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Parameters of glibc's mallopt(3).
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST_INT = 2**31 - 1
CPUS = Path("/proc/cpuinfo")
MEMORY = Path("/proc/self/statm")  # of this process, in pages: the second number is what it holds
SET_PARENT_DEATH_SIGNAL = 1  # of Linux's prctl(2)
ENDING = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what Slurm, Kubernetes and kill send


def processor_name() -> str:
    """Names the processor of this machine; without Linux, the kind of machine."""
    lines = CPUS.read_text().splitlines() if CPUS.is_file() else []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def settle() -> None:
    """Tunes memory, which changes speed and never results. Call it when everything that lives to
    the end is loaded.

    By default glibc maps every large block anew and gives it back when it is freed, so that each
    activation is paid for by a page fault on every 4 KiB of it: a quarter of the decoding time on
    two cores. Here freed memory is kept. And Python's garbage collector no longer searches the
    million objects of torch and transformers.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_INT)
        library.mallopt(M_TRIM_THRESHOLD, LARGEST_INT)
    gc.collect()
    gc.freeze()


class FreedMemory:
    """Gives memory that was freed back to the system where keeping it has made a process grow.

    What :func:`settle` keeps is cut into pieces by blocks of many sizes, and long runs grow by it:
    SmolLM2 with 17 formats by 110 MB a context, to 10 GB of which 1 GB was in use."""

    def __init__(self, growth: int = 2**31) -> None:
        """``growth``: bytes above what it held before that are let go."""
        self._growth = growth
        self._held_before: int | None = None  # bytes; None until something was held

    def give_back_growth(self) -> bool:
        """Tells whether memory was given back. Call it between two pieces of work, each of which
        frees most of what it takes: the next one pays a page fault for all that was given back."""
        if platform.libc_ver()[0] != "glibc" or not MEMORY.is_file():
            return False
        held = int(MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if self._held_before is None:
            self._held_before = held
        if held - self._held_before < self._growth:
            return False
        ctypes.CDLL(None).malloc_trim(0)
        self._held_before = None
        return True


def die_with_parent(parent: int) -> None:
    """Lets the kernel end this process when its parent is killed: it would wait for work for
    ever."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed before this call
            os._exit(1)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # it is of another user
    return True


def answer_interrupts() -> None:
    """Has SIGTERM end the command in order, as Ctrl-C does."""
    for number in ENDING:
        signal.signal(number, signal.default_int_handler)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Puts Ctrl-C off until the body has ended, and then raises :class:`KeyboardInterrupt`. In a
    destructor, such as that of a file that is being written, Python prints it and forgets it."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    pending: list[int] = []
    answered = []
    for number in ENDING:
        if signal.getsignal(number) is signal.default_int_handler:  # Ray's are left alone
            answered.append(number)
            signal.signal(number, lambda received, _: pending.append(received))
    try:
        yield
    finally:
        for number in answered:
            signal.signal(number, signal.default_int_handler)
    if pending:
        raise KeyboardInterrupt


def leave_to_parent() -> None:
    """Has this process ignore such signals, which reach all processes of a terminal or a job: its
    parent ends it."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
