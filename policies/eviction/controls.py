"""The controls that every table holds: full cache, random, recency and oracle."""

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Policy, Press, Situation

presses = LazyModule("policies.presses.controls")


def _random(situation: Situation) -> Press:
    return presses.RandomControlPress(situation.ratio, situation.seed, situation.example_id)


def _oracle(situation: Situation) -> Press:
    return presses.OraclePress(situation.ratio, situation.answer_tokens, situation.evidence_tokens)


FULL = Policy(
    name="full",
    family="control",
    paper="-",
    description="The whole cache: what every other row is compared with",
    build=lambda situation: presses.FullPress(),
    budget="keeps everything at any ratio",
    ratio_free_score=True,
    kinds=(),
    more_tokens_than=0,
    by_default=True,
)
RANDOM = Policy(
    name="random",
    family="control",
    paper="-",
    description="Independent random tokens for every layer, head and example",
    build=_random,
    random=True,
    ratio_free_score=True,
    by_default=True,
)
RECENCY = Policy(
    name="recency",
    family="control",
    paper="-",
    description="The most recent tokens",
    build=lambda situation: presses.RecencyPress(situation.ratio),
    ratio_free_score=True,
    by_default=True,
)
ORACLE = Policy(
    name="oracle",
    family="control",
    paper="-",
    description="Knows the question and keeps its evidence",
    build=_oracle,
    ratio_free_score=True,
    per_question=True,
    by_default=True,
)
