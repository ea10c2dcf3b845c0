"""What a policy is: a named way to build a kvpress press for a budget."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kvpress import BasePress

from policies.errors import PolicyError

Family = Literal["control", "scorer", "head-wise"]
Attention = Literal["sdpa", "eager"]


@dataclass(frozen=True)
class Situation:
    """What a policy may look at when it builds a press for one context.

    ``ratio``: asked share of the cache to remove, in [0, 1). ``context_length``: tokens in the compressed region.
    ``answer_tokens`` and ``evidence_tokens``: their positions there, for the oracle alone; empty unless the policy is
    ``per_question``.
    """

    ratio: float
    context_length: int
    seed: int
    example_id: str
    answer_tokens: tuple[int, ...] = ()
    evidence_tokens: tuple[int, ...] = ()


def no_arguments(context_length: int) -> Mapping[str, int | float]:
    return {}


@dataclass(frozen=True)
class Baseline:
    """What a user of kvpress runs for this policy, and on which attention, where that is not the press itself."""

    build: Callable[[Situation], BasePress]
    attention: Attention


@dataclass(frozen=True)
class Policy:
    """A registry entry; it builds a fresh press each time and holds none.

    arguments
        The press's own arguments for a context of a given length, kept in every record.
    ratio_free_score
        The scores of the press, or of the press inside it, do not depend on the ratio: one scoring serves all ratios.
    per_question
        One press for each question, as it is told where the answer lies.
    more_tokens_than
        The context must be longer than this many tokens; kvpress asserts it.
    renumbers
        The press rotates the keys that it keeps to new positions, so that decoding goes on from their number and not
        from the length of the context.
    baseline
        How kvpress itself does the same, if by another press.
    """

    name: str
    family: Family
    paper: str
    description: str
    build: Callable[[Situation], BasePress]
    arguments: Callable[[int], Mapping[str, int | float]] = field(default=no_arguments)
    ratio_free_score: bool = False
    per_question: bool = False
    more_tokens_than: int = 1
    only_ratio_zero: bool = False
    renumbers: bool = False
    baseline: Baseline | None = None

    def press(self, situation: Situation) -> BasePress:
        """A fresh press; :class:`PolicyError` if the context is too short for it."""
        if situation.context_length <= self.more_tokens_than:
            raise PolicyError(
                f"{self.name} needs a context longer than {self.more_tokens_than} tokens, "
                f"this one has {situation.context_length}: use longer contexts or leave the policy out"
            )
        return self.build(situation)
