"""Foretells which formats a model's cache stands, by rules that were written down before they were
tested (``docs/passports.md`` has the forecasts that came true, and those that did not)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from kvbench.passport.probe import LayerStates
from kvbench.passport.shifts import measure_shifts
from policies import Policy

# A format breaks a model where, on average over layers, so much of the attention of a question goes
# to other tokens than with exact keys. Written down on 28 November 2026, when of natural models
# eight formats had been run on qwen, at a few contexts, and none on the others.
MOST_MOVED = 0.12
# A layer where so much goes to other tokens is named as one where the format breaks.
LAYER_MOVED = 0.2

# By the bits of a format of llama.cpp, one that groups keys by channel.
BY_CHANNEL = {"4": "int4", "5": "int8", "8": "int8"}
# What engines and papers offer.
FORMATS = (
    "q8_0",
    "fp8_e4m3",
    "fp8_e5m2",
    "int8",
    "q5_1",
    "q5_0",
    "q4_1",
    "q4_0",
    "int4",
    "int4(k_axis=token)",
    "int3",
    "int2",
    "int2(k_axis=token)",
)


@dataclass(frozen=True)
class FormatForecast:
    """Holds what is foretold of one format. ``moved``: share of the attention that goes to other tokens,
    mean over layers; ``layers``: those where much of it does; ``output_error``, ``key_error``,
    ``value_error``: relative, mean over layers; ``mends``: what would hold in its place."""

    format: str
    breaks: bool
    moved: float
    layers: tuple[int, ...]
    output_error: float
    key_error: float
    value_error: float
    mends: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        return "breaks" if self.breaks else "holds"


def forecast(policy: Policy, states: Sequence[LayerStates]) -> FormatForecast:
    """Foretells whether a format holds on the states of a model."""
    shifts = measure_shifts(policy, states)
    moved = fmean(shift.moved for shift in shifts)
    return FormatForecast(
        format=policy.name,
        breaks=moved > MOST_MOVED,
        moved=moved,
        layers=tuple(shift.layer for shift in shifts if shift.moved > LAYER_MOVED),
        output_error=fmean(shift.output_error for shift in shifts),
        key_error=fmean(shift.key_error for shift in shifts),
        value_error=fmean(shift.value_error for shift in shifts),
    )


def list_mends(forecast: FormatForecast, layer_count: int) -> list[str]:
    """Names formats that may hold where one breaks: keys in 8 bits, keys by channel, the first of
    the layers where it breaks left exact, rows turned first; and the last two together."""
    name = forecast.format
    kind, _, options = name.partition("(")
    others = options.removesuffix(")")

    def having(*more: str) -> str:
        return f"{kind}({','.join(filter(None, (others, *more)))})"

    mends: list[str] = []
    if kind.startswith("q"):
        mends += [f"q8_0(values={kind})", BY_CHANNEL[kind[1]]]
    elif "k_axis=token" in others:
        mends += [f"q8_0(values={kind})", kind]
    # The option leaves one run of layers exact, from the first on.
    first = 0
    while first in forecast.layers:
        first += 1
    from_there = f"layers={first}-"
    if 0 < first < layer_count:
        mends.append(having(from_there))
    if kind[0] in "iq":
        mends.append(having("rotate=hadamard"))
        if 0 < first < layer_count:
            mends.append(having(from_there, "rotate=hadamard"))
    return mends


def forecast_all(
    find: Callable[[str], Policy], names: Sequence[str], states: Sequence[LayerStates]
) -> list[FormatForecast]:
    """Foretells for several formats, and for those that break what would hold. ``find``: a policy by
    its name."""
    forecasts: list[FormatForecast] = []
    for name in names:
        foretold = forecast(find(name), states)
        if foretold.breaks:
            holding: list[str] = []
            for mend in list_mends(foretold, len(states)):
                policy = find(mend)
                if not forecast(policy, states).breaks:
                    holding.append(policy.name)
            foretold = replace(foretold, mends=tuple(holding))
        forecasts.append(foretold)
    return forecasts
