"""Accelerators by their data sheets, and the share of that which is counted on."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvbench.planning.constants import Constants

COMPUTE_SHARE, READING_SHARE = 0.4, 0.6  # of peak: assumed, not measured
USABLE = 0.9  # of the memory


@dataclass(frozen=True)
class Machine:
    """One device. ``flops`` and ``bandwidth`` a second, ``memory`` in bytes. ``compute`` and ``reading``: the shares of
    them that are reached. ``source``: where that is from."""

    name: str
    flops: float
    bandwidth: float
    memory: float
    compute: float
    reading: float
    source: str

    def seconds(self, flops: float, read: float) -> float:
        """Of work that is bound by one or the other."""
        return max(flops / (self.flops * self.compute), read / (self.bandwidth * self.reading))


def _sheet(name: str, flops: float, bandwidth: float, memory: float) -> Machine:
    source = (
        f"a projection: {flops / 1e12:,.0f} TFLOP/s in bfloat16, {bandwidth / 1e12:.2f} TB/s and {memory / 1e9:.0f} GB "
        f"from the data sheet, of which {COMPUTE_SHARE:.0%} and {READING_SHARE:.0%} are assumed to be reached; "
        "not measured on such a GPU"
    )
    return Machine(name, flops, bandwidth, memory, COMPUTE_SHARE, READING_SHARE, source)


MACHINES: Mapping[str, Machine] = {
    machine.name: machine
    for machine in (
        _sheet("a100", 312e12, 2.039e12, 80e9),
        _sheet("h100", 989e12, 3.35e12, 80e9),
        _sheet("h200", 989e12, 4.8e12, 141e9),
    )
}
MEASURED = "measured"


def measured_machine(constants: Constants, memory: float) -> Machine:
    """The one that the constants are from."""
    return Machine(
        MEASURED,
        constants.flops,
        constants.bandwidth,
        memory,
        constants.prefill_share,
        constants.decode_share,
        f"measured on {constants.machine} on {constants.date}",
    )
