"""The machines that a plan may be for: accelerators by their data sheets, and this one, which is measured."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from datasets_gen import unknown_name
from kvbench.system.errors import KVBenchError
from kvbench.system.process import processor_name
from policies import LazyModule

torch = LazyModule("torch")  # which a mistyped name of a machine does not wait for

COMPUTE_SHARE, READING_SHARE = 0.4, 0.6  # of the data sheet: assumed, not measured
LAYER_SECONDS = 0.3e-3  # of a layer in a pass of PyTorch without graphs, which no faster GPU shortens: assumed
USABLE = 0.9  # of the memory
THIS = "this"
ROWS = 256  # of the product that is measured
FEW_ROWS = 8  # of the product that reads many weights for little, as decoding does
CALLS = 60  # operations of a layer in a pass, each of which costs a call however little it computes
LARGE = 2**24  # numbers, more than caches hold
ATTEMPTS = 3


@dataclass(frozen=True)
class Machine:
    """One device, with what of its speed a run reaches."""

    name: str
    flops: float  # operations a second
    bandwidth: float  # bytes of weights and cache a second
    memory: float  # bytes
    source: str  # where the figures are from
    layer_seconds: float = 0.0  # that a layer takes in a pass, however little it computes
    copied: float | None = None  # bytes a second, where copies are faster than products of few rows read

    def seconds(self, operations: float, read: float, layers: float = 0.0, copied: float = 0.0) -> float:
        """Returns the time of work that is bound by its operations or by the bytes that it reads, beside that of
        copies, and of the calls of so many layers in all its passes."""
        copies = copied / (self.copied or self.bandwidth)
        return max(operations / self.flops, read / self.bandwidth) + copies + layers * self.layer_seconds


def _by_data_sheet(name: str, flops: float, bandwidth: float, memory: float) -> Machine:
    source = (
        f"a projection: {flops / 1e12:,.0f} TFLOP/s in bfloat16, {bandwidth / 1e12:.2f} TB/s and {memory / 1e9:.0f} GB "
        f"from the data sheet, of which {COMPUTE_SHARE:.0%} and {READING_SHARE:.0%} are assumed to be reached; "
        "not measured on such a GPU"
    )
    return Machine(name, flops * COMPUTE_SHARE, bandwidth * READING_SHARE, memory, source, LAYER_SECONDS)


MACHINES: Mapping[str, Machine] = {
    "rtx3060": _by_data_sheet("rtx3060", 25.5e12, 0.36e12, 12e9),
    "rtx4080": _by_data_sheet("rtx4080", 97.5e12, 0.717e12, 16e9),
    "rtx4090": _by_data_sheet("rtx4090", 165e12, 1.008e12, 24e9),
    "l40s": _by_data_sheet("l40s", 362e12, 0.864e12, 48e9),
    "a100": _by_data_sheet("a100", 312e12, 2.039e12, 80e9),
    "h100": _by_data_sheet("h100", 989e12, 3.35e12, 80e9),
    "h200": _by_data_sheet("h200", 989e12, 4.8e12, 141e9),
}


def this_machine(hidden_size: int, bytes_per_number: int = 4) -> Machine:
    """Measures in a fraction of a second what products of a model's width, copies and calls take here."""
    dtype = torch.float32 if bytes_per_number > 2 else torch.bfloat16
    left, right = torch.ones(ROWS, hidden_size, dtype=dtype), torch.ones(hidden_size, 4 * hidden_size, dtype=dtype)
    weights = torch.ones(LARGE // hidden_size, hidden_size, dtype=dtype)
    target, few = torch.empty_like(weights), torch.ones(FEW_ROWS)
    call = _best_seconds(lambda: [few.add_(1) for _ in range(CALLS)])
    return Machine(
        THIS,
        2.0 * ROWS * hidden_size * 4 * hidden_size / _best_seconds(lambda: torch.mm(left, right)),
        weights.nbytes / _best_seconds(lambda: torch.mm(left[:FEW_ROWS], weights.t())),
        float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        f"measured now: {torch.get_num_threads()} threads of {processor_name()}",
        call,
        2 * weights.nbytes / _best_seconds(lambda: target.copy_(weights)),
    )


def _best_seconds(work: Callable[[], object]) -> float:
    """Times work in its best of a few attempts; the first prepares it and is not counted."""
    times = []
    for _ in range(1 + ATTEMPTS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def check_machine(name: str) -> None:
    """Raises :class:`KVBenchError` for the name of an unknown machine."""
    if name not in (*MACHINES, THIS):
        raise KVBenchError(unknown_name("machine", name, [*MACHINES, THIS]))


def find_machine(name: str, hidden_size: int, bytes_per_number: int) -> Machine:
    """Returns the machine of a name; this one is measured for a model of a width."""
    return this_machine(hidden_size, bytes_per_number) if name == THIS else MACHINES[name]
