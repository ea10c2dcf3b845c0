"""Tells how much memory there is, how much keys and values may take, and whether an error means that it ran out."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from policies.declaration.devices import kind_of

MEMORY = Path("/proc/meminfo")
SELF = Path("/proc/self/statm")
CONTROL_GROUP = Path(
    "/sys/fs/cgroup"
)  # of a container: what the machine has free may be more than it is given
RESERVE = 0.9  # of the memory that is free
WITHOUT_LINUX = 2 * 10**9  # bytes: what macOS counts as free says little, as it fills it with files
WORDS = (
    "can't allocate memory",
    "not enough memory",
    "Cannot allocate memory",
)  # of a CPU's RuntimeError


def free_bytes(device: torch.device) -> int:
    """Returns the bytes that are free on the device, or on the machine; no more than the container may still take."""
    if (of_device := kind_of(device).free_bytes) is not None:
        return of_device(device)
    if sys.platform != "linux":
        return WITHOUT_LINUX
    free = next(
        int(line.split()[1]) * 1024
        for line in MEMORY.read_text().splitlines()
        if "MemAvailable" in line
    )
    try:
        most, held, statistics = (
            (CONTROL_GROUP / name).read_text().strip()
            for name in ("memory.max", "memory.current", "memory.stat")
        )
    except OSError:  # no container, or one of another kind
        return free
    if most == "max":
        return free
    # Files that were read, such as weights, count as held, and are let go when memory is asked for.
    files = next(
        (
            int(line.split()[1])
            for line in statistics.splitlines()
            if line.startswith("inactive_file ")
        ),
        0,
    )
    return max(0, min(free, int(most) - int(held) + files))


def kv_share(device: torch.device) -> int:
    """Returns the bytes that keys and values may take where no bound was asked for."""
    return int(free_bytes(device) * kind_of(device).kv_share)


def is_out_of_memory(error: BaseException) -> bool:
    """Tells whether memory ran out: Python, CUDA and the allocator of a CPU say it in three ways."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)


@contextmanager
def memory_bound(device: torch.device, most: int | None = None) -> Iterator[None]:
    """Lets its body allocate ``most`` bytes, or nearly as much as is free on the machine: more raises an error, where
    the kernel would kill the process. On Linux alone, and not for a CUDA process, which reserves addresses at will and
    raises itself."""
    if sys.platform != "linux" or kind_of(device).raises_out_of_memory:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(SELF.read_text().split()[0]) * resource.getpagesize()
    bound = held + (most or int(free_bytes(device) * RESERVE))
    resource.setrlimit(
        resource.RLIMIT_AS, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
