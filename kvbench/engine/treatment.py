"""What is to be done to a prefilled context: policies by ratios, and the questions each answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from datasets_gen import TASKS
from kvbench.prompt import Prompt
from policies import Policy, Situation

CELL_SECONDS = 60.0
CALIBRATION_TEXTS = 8


@dataclass(frozen=True)
class Treatment:
    """One policy at one ratio on one prompt. ``asks``: positions of the questions decoded from its branch.
    ``cell_seconds``: how long its press may take."""

    policy: Policy
    situation: Situation
    asks: tuple[int, ...]
    cell_seconds: float = CELL_SECONDS

    @property
    def ratio(self) -> float:
        return self.situation.ratio


@dataclass(frozen=True)
class Scoring:
    """Treatments of one policy that differ in nothing but the ratio."""

    policy: Policy
    treatments: tuple[Treatment, ...]


def ratios_of(policy: Policy, ratios: Sequence[float]) -> tuple[float, ...]:
    """The ratios at which a policy runs: the full cache has one only, and some reach no high one."""
    if policy.only_ratio_zero:
        return (0.0,)
    return tuple(ratio for ratio in ratios if ratio <= policy.highest_ratio)


@cache
def calibration_texts() -> tuple[str, ...]:
    """Prose that no test shows, for presses that look at a model before they look at a context."""
    examples = TASKS["long_context"].generate(0, CALIBRATION_TEXTS, "train")
    return tuple(example.context for example in examples)


def plan(
    policies: Sequence[Policy],
    ratios: Sequence[float],
    prompt: Prompt,
    seed: int,
    cell_seconds: float = CELL_SECONDS,
) -> list[Scoring]:
    """All treatments of a prompt, grouped so that one scoring may serve all ratios of a group."""
    everything = tuple(range(len(prompt.asks)))
    scorings = []
    for policy in policies:
        groups = [(number,) for number in everything] if policy.per_question else [everything]
        for asks in groups:
            told = prompt.asks[asks[0]] if policy.per_question else None
            treatments = tuple(
                Treatment(
                    policy,
                    Situation(
                        ratio,
                        len(prompt.token_ids),
                        seed,
                        prompt.example.id,
                        question_tokens=prompt.question_tokens,
                        spans=prompt.protected,
                        answer_tokens=told.answer_tokens if told else (),
                        evidence_tokens=told.evidence_tokens if told else (),
                        texts=calibration_texts,
                    ),
                    asks,
                    cell_seconds,
                )
                for ratio in ratios_of(policy, ratios)
            )
            scorings.append(Scoring(policy, treatments))
    return scorings
