"""The suite of bytes: what is kept at equal bytes by eviction, fewer bits, and both."""

from itertools import permutations

from datasets_gen import TASKS
from kvbench.studies.declaration import Suite, at
from policies.composition import QUANTISATION_NAMES
from policies.treatments.spelling import spell_out

# Of a full cache in 16 bits 50, 25, 12.5 and 6.25 % are aimed at. With scales, zero points and the
# latest tokens in full, int8 takes 58 % of what it is given, int4 35 % and int2 24 %, so that less
# is evicted before it. The front is drawn over the bytes that are held, whatever was aimed at.
EVICTED = ("snapkv", "tova", "knorm")
STORED = ("int8", "fp8_e4m3", "int4", "int3", "int2")
# The types that engines offer for keys and for values: what do the bits of which tensor buy?
_TYPES = ("f16", "q8_0", "q5_1", "q4_0")
_PAIRS = [spell_out("/".join(pair), QUANTISATION_NAMES) for pair in permutations(_TYPES, 2)]
_SAME = _TYPES[1:]
_BOTH = (
    at((f"{plain}+int8" for plain in EVICTED), ratio="0.14,0.57,0.785,0.9")
    | at((f"{plain}+int4" for plain in EVICTED), ratio="0.285,0.64,0.82")
    | at((f"{plain}+int2" for plain in EVICTED), ratio="0.47,0.735")
)

# Of higher ratios one page is left of a short context, and it is the same whatever chooses it.
# Ends are kept whatever is in them: whoever keeps them is measured against chance that does so too.
_DEPLOYED = at(
    (
        *(f"{plain}+{way}" for plain in EVICTED for way in ("pages16", "shared", "ends")),
        "random+ends",
    ),
    ratio="0.5,0.75",
)

SUITE = Suite(
    name="bytes",
    description="What is kept at equal bytes by eviction, fewer bits, and both, and by what an engine can free",
    tasks=(TASKS["base"], TASKS["long_context"]),
    policies=",".join((*EVICTED, *STORED, *_SAME, *_PAIRS, *_BOTH, *_DEPLOYED)),
    levels={"ratio": "0.5,0.75,0.875,0.9375"},
    own_levels=_BOTH | _DEPLOYED,
    limit=12,
    tables=("reconstruction",),
)
