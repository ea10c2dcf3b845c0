"""FINCH: SnapKV's idea with the question as the window, and kept keys turned to consecutive positions."""

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Policy, Press, Situation

presses = LazyModule("policies.presses.finch")


def _finch(situation: Situation) -> Press:
    return presses.KnownQuestionFinchPress(situation.ratio, window_size=situation.question_tokens)


FINCH = Policy(
    name="finch",
    family="scorer",
    paper="doi 10.1162/tacl_a_00716",
    description="Attention from the question, kept keys turned to consecutive positions",
    build=_finch,
    needs_question=True,
    rewrites=True,
    renumbers=True,
)
