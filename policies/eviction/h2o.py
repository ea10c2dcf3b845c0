"""H2O's prefill form."""

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Baseline, Policy, Press, Situation

kvpress = LazyModule("kvpress")
presses = LazyModule("policies.presses.h2o")


def _observed_attention(situation: Situation) -> Press:
    return kvpress.ObservedAttentionPress(situation.ratio)


H2O = Policy(
    name="h2o",
    family="scorer",
    paper="arXiv 2306.14048",
    description="Attention received during the prefill (kvpress: ObservedAttentionPress)",
    build=lambda situation: presses.H2OPress(situation.ratio),
    ratio_free_score=True,
    baseline=Baseline(_observed_attention, "eager"),
    by_default=True,
)
