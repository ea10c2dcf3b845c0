"""Sets this process up for long work on a CPU. The settings change speed, never results."""

import ctypes
import gc
import os
import platform
import signal
import sys
from pathlib import Path

# Parameters of glibc's mallopt(3).
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST_INT = 2**31 - 1
CPUS = Path("/proc/cpuinfo")
SET_PARENT_DEATH_SIGNAL = 1  # of Linux's prctl(2)


def processor_name() -> str:
    """Names the processor of this machine; without Linux, the kind of machine."""
    lines = CPUS.read_text().splitlines() if CPUS.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def settle() -> None:
    """Tunes memory. Call it when everything that lives to the end is loaded.

    By default glibc maps every large block anew and gives it back when it is freed, so that each activation is paid
    for by a page fault on every 4 KiB of it: a quarter of the decoding time on two cores. Here freed memory is kept.
    And Python's garbage collector no longer searches the million objects of torch and transformers.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_INT)
        library.mallopt(M_TRIM_THRESHOLD, LARGEST_INT)
    gc.collect()
    gc.freeze()


def die_with_parent(parent: int) -> None:
    """Lets the kernel end this process when its parent is killed: it would wait for work for ever."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed before this call
            os._exit(1)


def is_running(process: int) -> bool:
    """Tells whether a process of this machine is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
