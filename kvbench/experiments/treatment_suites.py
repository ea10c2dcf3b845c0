"""The suite on faults of the cache."""

from datasets_gen import TASKS
from kvbench.experiments.suite import Suite, at

RATES = "0,0.005,0.01,0.02,0.05,0.1,0.2,0.3,0.5"
KINDS = (
    *("gaussian", "gaussian_matched", "zeros", "distractor", "stale"),
    *("multiplicative_uniform", "multiplicative_normal", "bias", "sign_flip"),
)
AIMED_KINDS = ("gaussian", "zeros")  # noise and nothing: what bands, aims and tensors are tried with
BANDS = ("Q1", "Q2", "Q3", "Q4", "H1", "H2")
AIMS = ("evidence", "answer", "other", "random")
FRESH = "unit=value,phase=every_step,persistence=transient"  # text F: single values, drawn anew before every pass


def _with(**options: tuple[str, ...]) -> tuple[str, ...]:
    """Names the two kinds with each value of an option."""
    ((option, values),) = options.items()
    return tuple(f"{kind}({option}={value})" for kind in AIMED_KINDS for value in values)


_AT_FEW_RATES = at((*_with(layers=BANDS), *_with(tensor=("K", "V"))), rate="0.02,0.1,0.3") | at(
    _with(tokens=AIMS), rate="0.1,0.3"
)
# The rates at which text F has figures for both its models. Every pass is another draw, which takes its time.
_AS_IN_TEXT_F = at((f"gaussian({FRESH})",), rate="0.02") | at((f"distractor({FRESH})",), rate="0.3")
_FLIPS = at(("bitflip",), rate="0.00001,0.0001")  # of all bits: what answers with infinity and NaN
_OWN_LEVELS = _AT_FEW_RATES | _AS_IN_TEXT_F | _FLIPS

FAULTS = Suite(
    name="faults",
    description="What a damaged cache breaks: by kind of fault, share, layers, tokens, and keys against values",
    tasks=(TASKS["base"],),
    if_named=tuple(TASKS[name] for name in ("knowledge", "multi_entity", "long_context", "instructions")),
    policies=(*KINDS, *_OWN_LEVELS),
    scope="context",
    defence="none",
    levels={"rate": RATES},
    own_levels=_OWN_LEVELS,
    repeats=5,
    limit=10,
)
