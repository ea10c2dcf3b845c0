"""Holds what differs by the kind of device: one table, each value of which is run on a CPU too.

Results never depend on it. It stands here as presses and faults may not import the engine, which
reads it too."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from policies.declaration.lazy import torch


@dataclass(frozen=True)
class DeviceKind:
    """Says how the engine works on one kind of device."""

    # Steps between two looks for answers that have ended: on a GPU each look waits for all the work
    # so far.
    look_every: int
    # Bytes of padding in a bundle. More bundles read less of it, in more operations: twelve for
    # each layer and pass.
    padding_bytes: int
    # Words of 64 bits that a draw mixes at once. A CPU wants them in its cache, 256 kB of them; a
    # GPU wants many, as an operation on few costs it no less. What is allocated meanwhile is about
    # 64 bytes a word.
    words_at_once: int
    # Of the free memory, for live keys and values where nobody says: others use the machine too.
    kv_share: float
    raises_out_of_memory: (
        bool  # an allocation that does not fit raises; on the host the kernel kills the process
    )
    synchronize: "Callable[[torch.device], None]"  # waits until all work is done
    free_bytes: (
        "Callable[[torch.device], int] | None"  # of the device; None: what the host has free
    )
    empty_cache: Callable[[], None]  # gives memory back that was freed
    # Notes a time in the device's own order of work, without waiting for it.
    mark: "Callable[[torch.device], Any]"
    # Of two marks; waits until the later one is reached.
    seconds_between: Callable[[Any, Any], float]


def _nothing(*_: object) -> None:
    """Does nothing: the host works in order, and frees at once."""


def _record_event(device: "torch.device") -> "torch.cuda.Event":
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _seconds_between_events(start: "torch.cuda.Event", end: "torch.cuda.Event") -> float:
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000


DEVICE_KINDS: Mapping[str, DeviceKind] = {
    "cpu": DeviceKind(
        look_every=1,
        padding_bytes=2 * 10**6,
        words_at_once=2**15,
        kv_share=0.25,
        raises_out_of_memory=False,
        synchronize=_nothing,
        free_bytes=None,
        empty_cache=_nothing,
        mark=lambda _: time.perf_counter(),
        seconds_between=lambda start, end: float(end - start),
    ),
    # torch.cuda is looked up when it is used: a build without it has the module and none of its
    # library.
    "cuda": DeviceKind(
        look_every=8,
        padding_bytes=2 * 10**8,
        words_at_once=2**21,
        kv_share=0.5,
        raises_out_of_memory=True,
        synchronize=lambda device: torch.cuda.synchronize(device),
        free_bytes=lambda device: int(torch.cuda.mem_get_info(device)[0]),
        empty_cache=lambda: torch.cuda.empty_cache(),
        mark=_record_event,
        seconds_between=_seconds_between_events,
    ),
}


def device_kind(device: "torch.device") -> DeviceKind:
    return DEVICE_KINDS[device.type]


@dataclass
class TimedWork:
    """Measures a stretch of work on a device without waiting for it."""

    device: "torch.device"
    host_seconds: float = 0.0  # that the host took to order the work, known at once
    _marks: list[Any] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Returns the time that the device took; waits until the stretch is done."""
        if self._marks:
            return device_kind(self.device).seconds_between(*self._marks)
        return 0.0


@contextmanager
def timing(device: "torch.device") -> Iterator[TimedWork]:
    """Yields the timed work of the body, which has its times once the body has ended without an
    error."""
    kind = device_kind(device)
    work = TimedWork(device)
    start = kind.mark(device)
    started = time.perf_counter()
    yield work
    work.host_seconds = time.perf_counter() - started
    work._marks = [start, kind.mark(device)]
