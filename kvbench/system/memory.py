"""Tells how much memory there is, how much keys and values may take, and whether an error means
that it ran out."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from policies.declaration.devices import device_kind

MEMORY = Path("/proc/meminfo")
SELF = Path("/proc/self/statm")
# Of a container: what the machine has free may be more than it is given.
CONTROL_GROUP = Path("/sys/fs/cgroup")
RESERVE = 0.9  # of the memory that is free
WITHOUT_LINUX = 2 * 10**9  # bytes: what macOS counts as free says little, as it fills it with files
# Of a CPU's RuntimeError.
WORDS = (
    "can't allocate memory",
    "not enough memory",
    "Cannot allocate memory",
)


def free_bytes(device: torch.device) -> int:
    """Returns the bytes that are free on the device, or on the machine; no more than the container
    may still take."""
    count_free = device_kind(device).free_bytes
    if count_free is not None:
        return count_free(device)
    if sys.platform != "linux":
        return WITHOUT_LINUX
    free = 1024 * _numbers(MEMORY.read_text())["MemAvailable"]
    try:
        limit = (CONTROL_GROUP / "memory.max").read_text().strip()
        held = int((CONTROL_GROUP / "memory.current").read_text())
        statistics = (CONTROL_GROUP / "memory.stat").read_text()
    except OSError:  # no container, or one of another kind
        return free
    if limit == "max":
        return free
    # Files that were read, such as weights, count as held, and are let go when memory is needed.
    files = _numbers(statistics).get("inactive_file", 0)
    return max(0, min(free, int(limit) - held + files))


def _numbers(text: str) -> dict[str, int]:
    """Returns the numbers that a file of the kernel lists, by name."""
    numbers = {}
    for line in text.splitlines():
        name, number, *_ = line.split()
        numbers[name.rstrip(":")] = int(number)
    return numbers


def kv_share(device: torch.device) -> int:
    """Returns the bytes that keys and values may take where no bound was asked for."""
    return int(free_bytes(device) * device_kind(device).kv_share)


def is_out_of_memory(error: BaseException) -> bool:
    """Tells whether memory ran out: Python, CUDA and the allocator of a CPU say it in three
    ways."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)


@contextmanager
def memory_bound(device: torch.device, limit: int | None = None) -> Iterator[None]:
    """Lets its body allocate ``limit`` bytes, or nearly as much as is free on the machine: more
    raises an error, where the kernel would kill the process. On Linux alone, and not for a CUDA
    process, which reserves addresses at will and raises itself."""
    if sys.platform != "linux" or device_kind(device).raises_out_of_memory:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(SELF.read_text().split()[0]) * resource.getpagesize()
    # The limit is on all addresses of the process, those that it has already among them.
    bound = held + (limit or int(free_bytes(device) * RESERVE))
    if hard != resource.RLIM_INFINITY:
        bound = min(bound, hard)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
