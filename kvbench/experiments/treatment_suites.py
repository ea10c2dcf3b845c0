"""The suites on faults of the cache, on errors of its values, and on what is kept at equal bytes."""

from datasets_gen import TASKS
from datasets_gen.tasks.prose import PROSE
from kvbench.experiments.suite import Suite, at
from policies.faults.options import AIMED

RATES = "0,0.005,0.01,0.02,0.05,0.1,0.2,0.3,0.5"
KINDS = (
    *("gaussian", "gaussian_matched", "zeros", "distractor", "stale"),
    *("multiplicative_uniform", "multiplicative_normal", "bias", "sign_flip"),
)
AIMED_KINDS = ("gaussian", "zeros")  # noise and nothing: what bands, aims and tensors are tried with
BANDS = ("Q1", "Q2", "Q3", "Q4", "H1", "H2")
FRESH = "unit=value,phase=every_step,persistence=transient"  # text F: single values, drawn anew before every pass


def _with(**options: tuple[str, ...]) -> tuple[str, ...]:
    """Names the two kinds with each value of an option."""
    ((option, values),) = options.items()
    return tuple(f"{kind}({option}={value})" for kind in AIMED_KINDS for value in values)


_AT_FEW_RATES = at((*_with(layers=BANDS), *_with(tensor=("K", "V"))), rate="0.02,0.1,0.3") | at(
    _with(tokens=AIMED), rate="0.1,0.3"
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

# The tables of text E. Of the uniform error rate 0 too, which is the full cache.
BITS = ("int8", "int4", "int3", "int2", "fp8_e4m3", "fp8_e5m2")
_UNIFORM, _NORMAL, _CONSTANT = (
    tuple(f"{kind}({options})" for options in of_kind)
    for kind, of_kind in (
        ("multiplicative_uniform", ("low=0,high=2", "low=-1.5,high=1.5", "tensor=K", "tensor=V")),
        ("multiplicative_normal", ("std=0.1", "std=0.25", "std=0.87", "tensor=K", "tensor=V")),
        ("bias", ("shift=0.25", "shift=0.5")),
    )
)
_SIGNS = ("sign_flip", "same_sign", *(f"{kind}(tensor={one})" for kind in ("sign_flip", "same_sign") for one in "KV"))
_OF_EVERY_VALUE = at((*_UNIFORM, "multiplicative_normal", *_NORMAL, *_CONSTANT), rate="1")
_OF_ERRORS = at(("multiplicative_uniform",), rate="0,1") | _OF_EVERY_VALUE | at(_SIGNS, rate="0.05")

ERRORS = Suite(
    name="errors",
    description="What small errors of every value break: fewer bits, noise, bias, wrong signs of equal size",
    tasks=(TASKS["instructions"], TASKS["base"], PROSE),
    if_named=tuple(TASKS[name] for name in ("knowledge", "multi_entity", "long_context")),
    policies=(*BITS, "int4(tensor=K)", "int4(tensor=V)", *_OF_ERRORS),
    scope="context",
    defence="none",
    own_levels=_OF_ERRORS,
    repeats=2,
    limit=24,
)


# Of the full cache at 16 bits 50, 25, 12.5 and 6.25 % are aimed at. With scales, zero points and the latest tokens in
# full, int8 takes 58 % of what it is given, int4 35 % and int2 24 %, so that less is evicted before it.
EVICTED = ("snapkv", "tova", "knorm")
STORED = ("int8", "fp8_e4m3", "int4", "int3", "int2")
_BOTH = (
    at((f"{plain}+int8" for plain in EVICTED), ratio="0.14,0.57,0.785,0.9")
    | at((f"{plain}+int4" for plain in EVICTED), ratio="0.285,0.64,0.82")
    | at((f"{plain}+int2" for plain in EVICTED), ratio="0.47,0.735")
)

# Of higher ratios one page is left of a short context, and it is the same whatever chooses it.
# Ends are kept whatever is in them: whoever keeps them is measured against chance that does so too.
_DEPLOYED = at(
    (*(f"{plain}+{way}" for plain in EVICTED for way in ("pages16", "shared", "ends")), "random+ends"), ratio="0.5,0.75"
)

BYTES = Suite(
    name="bytes",
    description="What is kept at equal bytes by eviction, fewer bits, and both, and by what an engine can free",
    tasks=(TASKS["base"], TASKS["long_context"]),
    if_named=tuple(TASKS[name] for name in ("knowledge", "multi_entity", "instructions")),
    policies=(*EVICTED, *STORED, *_BOTH, *_DEPLOYED),
    scope="context",
    defence="none",
    levels={"ratio": "0.5,0.75,0.875,0.9375"},
    own_levels=_BOTH | _DEPLOYED,
    limit=12,
    dtype="float16",
)
