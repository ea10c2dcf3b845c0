"""FINCH: SnapKV's idea with the question as the window, and kept keys turned to consecutive positions."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from kvpress import BasePress, FinchPress

from policies.policy import Policy, Situation


@dataclass
class KnownQuestionFinchPress(FinchPress):
    """Told how many tokens the question has, where kvpress's finds a delimiter that it adds to the vocabulary."""

    def __call__(self, model: Any) -> AbstractContextManager[None]:
        watched: AbstractContextManager[None] = BasePress.__call__(self, model)
        return watched


def _finch(situation: Situation) -> BasePress:
    press = KnownQuestionFinchPress(situation.ratio)
    press.window_size = situation.question_tokens
    return press


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
