"""The machines that a plan may be for: accelerators by their data sheets, and the one that was measured."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from datasets_gen import unknown_name
from kvbench.estimate.constants import Constants
from kvbench.system.errors import KVBenchError

COMPUTE_SHARE, READING_SHARE = 0.4, 0.6  # of the data sheet: assumed, not measured
USABLE = 0.9  # of the memory
MEASURED = "measured"


@dataclass(frozen=True)
class Machine:
    """One device, with what of its speed a run reaches."""

    name: str
    flops: float  # operations a second
    bandwidth: float  # bytes a second
    memory: float  # bytes
    source: str  # where the figures are from

    def seconds(self, operations: float, read: float) -> float:
        """Returns the time of work that is bound by its operations or by the bytes that it reads."""
        return max(operations / self.flops, read / self.bandwidth)


def _by_data_sheet(name: str, flops: float, bandwidth: float, memory: float) -> Machine:
    source = (
        f"a projection: {flops / 1e12:,.0f} TFLOP/s in bfloat16, {bandwidth / 1e12:.2f} TB/s and {memory / 1e9:.0f} GB "
        f"from the data sheet, of which {COMPUTE_SHARE:.0%} and {READING_SHARE:.0%} are assumed to be reached; "
        "not measured on such a GPU"
    )
    return Machine(name, flops * COMPUTE_SHARE, bandwidth * READING_SHARE, memory, source)


MACHINES: Mapping[str, Machine] = {
    "rtx3060": _by_data_sheet("rtx3060", 25.5e12, 0.36e12, 12e9),
    "rtx4080": _by_data_sheet("rtx4080", 97.5e12, 0.717e12, 16e9),
    "rtx4090": _by_data_sheet("rtx4090", 165e12, 1.008e12, 24e9),
    "l40s": _by_data_sheet("l40s", 362e12, 0.864e12, 48e9),
    "a100": _by_data_sheet("a100", 312e12, 2.039e12, 80e9),
    "h100": _by_data_sheet("h100", 989e12, 3.35e12, 80e9),
    "h200": _by_data_sheet("h200", 989e12, 4.8e12, 141e9),
}


def measured_machine(constants: Constants, memory: float) -> Machine:
    """Returns the machine that the constants are from."""
    flops, bandwidth = constants.flops * constants.prefill_share, constants.bandwidth * constants.decode_share
    return Machine(MEASURED, flops, bandwidth, memory, f"measured on {constants.machine} on {constants.date}")


def find_machine(name: str, memory_gb: float, constants: Constants) -> Machine:
    """Returns the machine of a name; raises :class:`KVBenchError` for an unknown one, or one without memory."""
    if not 0 < memory_gb < math.inf:
        raise KVBenchError(f"--memory-gb is more than 0, not {memory_gb:g}")
    machines = {**MACHINES, MEASURED: measured_machine(constants, memory_gb * 1e9)}
    if name not in machines:
        raise KVBenchError(unknown_name("machine", name, machines))
    return machines[name]
