"""What is to be done to a prefilled context: policies by ratios or budgets, and the questions each answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from datasets_gen import TASKS
from kvbench.engine.bounds import Patience
from kvbench.prompt import Prompt
from leaderboards import Asked
from policies import Policy, Situation

CALIBRATION_TEXTS = 8
A_LITTLE = 1e-6  # of a token: or 1 - (1 - 63/96) of 96 tokens comes to 62.99, and kvpress keeps 62


@dataclass(frozen=True)
class Treatment:
    """One policy at one ratio on one prompt. ``asks``: positions of the questions decoded from its branch.
    ``patience``: how long its press may take. ``budget``: the tokens of a head that the ratio stands for, if they were
    asked for."""

    policy: Policy
    situation: Situation
    asks: tuple[int, ...]
    patience: Patience
    budget: int | None = None

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


def levels_of(policy: Policy, ratios: Sequence[float], budgets: Sequence[int]) -> tuple[Asked, ...]:
    """All that a policy is asked to reach: the ratios, and the budgets in tokens of a head."""
    asked = [Asked("ratio", ratio) for ratio in ratios_of(policy, ratios)]
    return (*asked, *(Asked("budget", tokens) for tokens in budgets if not policy.only_ratio_zero))


def ratio_for(asked: Asked, length: int) -> float:
    """The share of ``length`` tokens that is to go; nothing of a context that is within the budget."""
    if asked.kind == "ratio":
        return asked.value
    return max(0.0, 1 - (asked.value + A_LITTLE) / length)


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
    patience: Patience | None = None,
    budgets: Sequence[int] = (),
) -> list[Scoring]:
    """All treatments of a prompt, grouped so that one scoring may serve all ratios of a group. ``budgets``: in tokens
    of a head."""
    length = len(prompt.token_ids)
    patience = patience or Patience()
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
                        ratio_for(asked, length),
                        length,
                        seed,
                        prompt.example.id,
                        question_tokens=prompt.question_tokens,
                        spans=prompt.protected,
                        answer_tokens=told.answer_tokens if told else (),
                        evidence_tokens=told.evidence_tokens if told else (),
                        texts=calibration_texts,
                    ),
                    asks,
                    patience,
                    int(asked.value) if asked.kind == "budget" else None,
                )
                for asked in levels_of(policy, ratios, budgets)
            )
            scorings.append(Scoring(policy, treatments))
    return scorings
