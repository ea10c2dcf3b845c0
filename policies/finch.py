"""FINCH: SnapKV's idea with the question as the window, and kept keys turned to consecutive positions."""

from dataclasses import dataclass

from kvpress import BasePress, FinchPress

from policies.policy import Policy, Situation


@dataclass
class KnownQuestionFinchPress(FinchPress):
    """Told how many tokens the question has, where kvpress's finds a delimiter that it adds to the vocabulary."""

    window_size: int = 1

    __call__ = BasePress.__call__  # without the search for the delimiter


def _finch(situation: Situation) -> BasePress:
    return KnownQuestionFinchPress(situation.ratio, window_size=situation.question_tokens)


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
