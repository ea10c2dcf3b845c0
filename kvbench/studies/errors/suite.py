"""The suite of errors: what small errors of every value break (text E)."""

from datasets_gen import TASKS
from datasets_gen.tasks.ifeval import IFEVAL
from datasets_gen.tasks.prose import PROSE
from kvbench.studies.declaration import PaperSize, Suite, at

# The tables of text E, whose error acts on each key and value "as it enters the KV cache" (5.3).
WRITTEN = "phase=write"
# The text's own types are llama.cpp's, q8_0 and q4_0.
BITS = ("q8_0", "q4_0", "int8", "int4", "int3", "int2", "fp8_e4m3", "fp8_e5m2")
_PARTS = ("", "tensor=K,", "tensor=V,")  # keys against values
_UNIFORM = tuple(
    f"multiplicative_uniform({WRITTEN}{bounds})"
    for bounds in ("", ",low=0,high=2", ",low=-1.5,high=1.5")
)
_NORMAL = tuple(
    f"multiplicative_normal({WRITTEN}{spread})"
    for spread in ("", ",std=0.1", ",std=0.25", ",std=0.87")
)
_ERRORS_OF_PARTS = tuple(
    f"{kind}({part}{WRITTEN})"
    for kind in ("multiplicative_uniform", "multiplicative_normal")
    for part in _PARTS[1:]
)
_SIGNS = tuple(f"{kind}({part}{WRITTEN})" for kind in ("sign_flip", "same_sign") for part in _PARTS)
# The same errors once behind an exact prefill, on the context alone, to show what the place of the
# text costs. A bias is no error of the text, and is counted in the spread of a layer, which is
# known when the context has been read.
_RESIDENT = (
    "multiplicative_uniform",
    "multiplicative_normal",
    "bias(shift=0.25)",
    "bias(shift=0.5)",
)
_OF_EVERY_VALUE = at((*_UNIFORM[1:], *_NORMAL, *_ERRORS_OF_PARTS, *_RESIDENT), rate="1")
# Of the uniform error rate 0 too, which is the full cache.
_OF_ERRORS = at(_UNIFORM[:1], rate="0,1") | _OF_EVERY_VALUE | at(_SIGNS, rate="0.05")

SUITE = Suite(
    name="errors",
    description="What small errors of every value break: fewer bits, noise, bias, wrong signs of equal size",
    tasks=(TASKS["instructions"], TASKS["base"], PROSE),
    policies=",".join((*BITS, "int4(tensor=K)", "int4(tensor=V)", *_OF_ERRORS)),
    own_levels=_OF_ERRORS,
    repeats=2,
    limit=24,
    # 5.5: IFEval without directives that count words, as answers end after 100 tokens; every
    # benchmark ran five times.
    paper_size=PaperSize(
        {IFEVAL.name: 128}, tokens=100, repeats=5, without=("length_constraints:number_words",)
    ),
    needs_right_answers=False,
)
