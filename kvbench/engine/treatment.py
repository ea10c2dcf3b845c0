"""What is to be done to a prefilled context: policies by ratios, and the questions each answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.prompt import Prompt
from policies import Policy, Situation


@dataclass(frozen=True)
class Treatment:
    """One policy at one ratio on one prompt. ``asks``: positions of the questions decoded from its branch."""

    policy: Policy
    situation: Situation
    asks: tuple[int, ...]

    @property
    def ratio(self) -> float:
        return self.situation.ratio


@dataclass(frozen=True)
class Scoring:
    """Treatments of one policy that differ in nothing but the ratio."""

    policy: Policy
    treatments: tuple[Treatment, ...]


def ratios_of(policy: Policy, ratios: Sequence[float]) -> tuple[float, ...]:
    """The ratios at which a policy runs: the full cache has one only."""
    return (0.0,) if policy.only_ratio_zero else tuple(ratios)


def plan(policies: Sequence[Policy], ratios: Sequence[float], prompt: Prompt, seed: int) -> list[Scoring]:
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
                        told.answer_tokens if told else (),
                        told.evidence_tokens if told else (),
                    ),
                    asks,
                )
                for ratio in ratios_of(policy, ratios)
            )
            scorings.append(Scoring(policy, treatments))
    return scorings
