"""Says how fast machines are: cards by their data sheets, and the machine that this runs on as it
is measured."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kvbench.system.process import processor_name
from leaderboards.statistics.text import count_text
from policies import LazyModule

# They need torch, which a mistyped name of a machine does not wait for.
precision = LazyModule("kvbench.models.precision")
torch = LazyModule("torch")

# The costs of presses and the bytes of a store were measured by ``plan --measure`` of revision
# c6c70ae.
TABLE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "constants.json").read_text(encoding="utf-8")
)
# By card, what ``make gpu`` measured of it (docs/gpu.md).
MEASURED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "measured.json").read_text(encoding="utf-8")
)
COMPUTE_SHARE, READING_SHARE = 0.4, 0.6  # of the data sheet: assumed, not measured
# Of a layer in a pass of PyTorch without graphs, which no faster GPU shortens: assumed.
LAYER_SECONDS = 0.3e-3
THIS = "this"
# Of the measured products: of a prefill, and of decoding, which reads many weights for little.
ROWS, FEW_ROWS = (256, 8)
CALLS = 60  # operations of a layer in a pass, each of which costs a call however little it computes
LARGE = 2**24  # numbers, more than caches hold
QUIET = 0.9  # of the processor's time that a process gets where nothing else works
# Times as long as those calls takes a layer of a pass over one token by transformers' own code,
# whose modules Python calls one by one: 4.2 in float32 and 7.2 in bfloat16, measured on `reference`
# on one thread of an AMD EPYC.
PLAIN_CALLS = 4.5


@dataclass(frozen=True)
class Machine:
    """One device, with what of its speed a run reaches."""

    name: str
    flops: float  # operations a second
    bandwidth: float  # bytes of weights and cache a second
    memory: float  # bytes
    source: str  # where the figures are from
    layer_seconds: float = 0.0  # that a layer takes in a pass, however little it computes
    # Bytes a second of copies, where these are faster than products of few rows read.
    copied: float | None = None
    # Of dtypes that are slower or faster.
    flops_by_dtype: Mapping[str, float] = field(default_factory=dict)
    # Dtypes of 16 bits whose products are computed in float32, with weights in both.
    emulated: tuple[str, ...] = ()
    # Times ``layer_seconds`` that a layer takes in a pass by transformers' own code.
    plain_calls: float = 1.0

    def seconds(self, operations: float, read: float, layers: float, dtype: str = "") -> float:
        """Returns the time of work that its operations or the bytes it reads bound, and of the
        calls of its layers."""
        flops = self.flops_by_dtype.get(dtype, self.flops)
        computing = operations / flops
        reading = read / self.bandwidth
        return max(computing, reading) + layers * self.layer_seconds

    @property
    def copies(self) -> float:
        """Returns the bytes a second of copies."""
        return self.copied or self.bandwidth


def card_machine(name: str, measured: Mapping[str, Any] | None) -> Machine:
    """Makes a machine from the figures of a card's data sheet and the shares of them that were
    measured on one, or else those that are assumed. The share in 16 bits is assumed of wider
    numbers too."""
    flops, float32, float64, bandwidth, memory = TABLE["machines"][name]
    if measured is None:
        computed, read, layer_seconds = COMPUTE_SHARE, READING_SHARE, LAYER_SECONDS
        begin = "a projection"
        end = "are assumed to be reached; not measured on such a GPU"
    else:
        computed = measured["compute_share"]
        read = measured["reading_share"]
        layer_seconds = measured["layer_seconds"]
        begin = f"measured on {measured['card']}, {measured['date']} by make gpu"
        end = "are reached"
    shares = f"{computed:.0%} of the operations and {read:.0%} of the bytes a second"
    return Machine(
        name,
        flops=flops * computed,
        bandwidth=bandwidth * read,
        memory=memory,
        source=f"{begin}: {shares} of the data sheet {end}",
        layer_seconds=layer_seconds,
        flops_by_dtype={"float32": float32 * computed, "float64": float64 * computed},
    )


MACHINES: Mapping[str, Machine] = {
    name: card_machine(name, MEASURED.get(name)) for name in TABLE["machines"]
}


def find_card(device: str) -> str:
    """Returns the name of a card in :data:`MACHINES` by the name that its driver gives it; else an
    empty text."""
    words = device.lower().replace(" ", "")
    names = [name for name in MACHINES if name in words]
    return max(names, key=len, default="")


def this_machine(hidden_size: int, dtype: str = "float32", others: Sequence[str] = ()) -> Machine:
    """Measures in a second what products of a model's width, copies and calls take here: their
    processor time, and the share of the processor that this process gets. By the clock a busy
    machine would seem ten times as slow as it is. ``others``: dtypes in which a study computes
    beside the model's."""
    # The processor's time first: to ask for it imports torch, which is no part of the measurement.
    processor_before = precision.processor_seconds()
    clock_before = time.perf_counter()
    few = torch.ones(FEW_ROWS)
    weights = torch.ones(LARGE // hidden_size, hidden_size, dtype=getattr(torch, dtype))
    # The calls of a layer without their work, which Python and torch take however small it is.
    call = precision.best_seconds(lambda: [few.add_(1) for _ in range(CALLS)])
    products = {dtype: precision.best_seconds(_product(hidden_size, dtype))}
    computed_in: dict[str, str] = {}  # by each other dtype, the one whose products are measured
    emulated: list[str] = []
    for name in others:
        if name == dtype:
            continue
        computed_in[name] = name
        if not precision.multiplies(name):
            computed_in[name] = "float32"
            emulated.append(name)
    for name in {*computed_in.values()} - {dtype}:
        products[name] = precision.best_seconds(_product(hidden_size, name))
    reading = precision.best_seconds(lambda: torch.mm(weights[:FEW_ROWS], weights.t()))
    target = torch.empty_like(weights)
    copying = precision.best_seconds(lambda: target.copy_(weights))
    processor_time = precision.processor_seconds() - processor_before
    share = min(1.0, processor_time / (time.perf_counter() - clock_before))
    # A multiplication and an addition for each pair of numbers of one product (_product).
    operations = share * 2.0 * ROWS * hidden_size * 4 * hidden_size
    threads = count_text(torch.get_num_threads(), "thread")
    source = f"measured now: {threads} of {processor_name()}"
    if share < QUIET:
        source += f", of which other work leaves {share:.0%}"
    return Machine(
        THIS,
        flops=operations / products[dtype],
        bandwidth=share * weights.nbytes / reading,
        memory=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        source=source,
        layer_seconds=call / share,
        # A copy reads and writes.
        copied=share * 2 * weights.nbytes / copying,
        flops_by_dtype={
            name: operations / products[product] for name, product in computed_in.items()
        },
        emulated=tuple(emulated),
        plain_calls=PLAIN_CALLS,
    )


def _product(hidden_size: int, dtype: str) -> Callable[[], object]:
    numbers = getattr(torch, dtype)
    left = torch.ones(ROWS, hidden_size, dtype=numbers)
    right = torch.ones(4 * hidden_size, hidden_size, dtype=numbers)
    return partial(torch.nn.functional.linear, left, right)
