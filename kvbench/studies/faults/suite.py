"""The suite of faults: what a damaged cache breaks (text F)."""

from collections.abc import Iterable

from datasets_gen import TASKS
from kvbench.studies.declaration import Suite, at
from policies.faults.options import AIMED

# Text F replaces single values while answers are written, drawn anew before every pass: its tables
# 1 and 2.
FRESH = "unit=value,phase=every_step,persistence=transient"
FRESH_KINDS = tuple(f"{kind}({FRESH})" for kind in ("gaussian", "zeros", "distractor"))
FRESH_RATES = "0.02,0.05,0.08,0.1,0.15,0.2,0.25,0.3,0.4,0.5"
BANDS = tuple(f"gaussian(layers={band},{FRESH})" for band in ("Q1", "Q2", "Q3", "Q4", "H1", "H2"))
_AS_IN_TEXT_F = at(FRESH_KINDS, rate=FRESH_RATES) | at(BANDS, rate="0.01,0.02,0.04")

# The same cache, damaged once, after the context is read. Rate 0 would be the full cache, bit for
# bit.
RATES = "0.01,0.05,0.1,0.3"
DAMAGES = (
    *("gaussian", "gaussian_matched", "zeros", "distractor", "stale"),
    *("multiplicative_uniform", "multiplicative_normal", "bias", "sign_flip"),
)
AIMED_KINDS = ("gaussian", "zeros")  # noise and nothing: what aims and tensors are tried with


def _with(option: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{kind}({option}={value})" for kind in AIMED_KINDS for value in values)


_AT_FEW_RATES = at((*_with("tensor", "KV"), *_with("tokens", AIMED)), rate="0.1,0.3")
_FLIPS = at(("bitflip",), rate="0.00001,0.0001")  # of all bits: what answers with infinity and NaN
_OWN_LEVELS = _AS_IN_TEXT_F | _AT_FEW_RATES | _FLIPS

SUITE = Suite(
    name="faults",
    description="What a damaged cache breaks, replaced while answers are written and damaged once: kinds, rates, bands",
    tasks=(TASKS["base"],),
    policies=",".join((*_AS_IN_TEXT_F, *DAMAGES, *_AT_FEW_RATES, *_FLIPS)),
    levels={"rate": RATES},
    own_levels=_OWN_LEVELS,
    repeats=5,
    limit=10,
    needs_right_answers=False,
)
