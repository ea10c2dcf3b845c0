"""The constants of a plan: ``constants.json``, and what a machine does in a second."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_gen import unknown_name
from kvbench.system.errors import KVBenchError
from kvbench.system.process import processor_name
from policies import LazyModule

torch = LazyModule("torch")  # which a mistyped name of a machine does not wait for

# The costs of presses and the bytes of a store were measured by ``plan --measure`` of revision c6c70ae.
TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "constants.json").read_text(encoding="utf-8"))
COMPUTE_SHARE, READING_SHARE = 0.4, 0.6  # of the data sheet: assumed, not measured
LAYER_SECONDS = 0.3e-3  # of a layer in a pass of PyTorch without graphs, which no faster GPU shortens: assumed
USABLE = 0.9  # of the memory
THIS = "this"
ROWS, FEW_ROWS = 256, 8  # of the measured products: of a prefill, and of decoding, which reads many weights for little
CALLS = 60  # operations of a layer in a pass, each of which costs a call however little it computes
LARGE = 2**24  # numbers, more than caches hold


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


BY_DATA_SHEET = (
    f"a projection: {COMPUTE_SHARE:.0%} of the operations and {READING_SHARE:.0%} of the bytes a second of the data "
    "sheet are assumed to be reached; not measured on such a GPU"
)
MACHINES: Mapping[str, Machine] = {
    name: Machine(name, flops * COMPUTE_SHARE, bandwidth * READING_SHARE, memory, BY_DATA_SHEET, LAYER_SECONDS)
    for name, (flops, bandwidth, memory) in TABLE["machines"].items()
}


def check_machine(name: str) -> None:
    """Raises :class:`KVBenchError` for the name of an unknown machine."""
    if name not in (*MACHINES, THIS):
        raise KVBenchError(unknown_name("machine", name, [*MACHINES, THIS]))


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
    """Times work in its best of three attempts, after one that prepares it."""
    times = []
    for _ in range(4):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times[1:])
