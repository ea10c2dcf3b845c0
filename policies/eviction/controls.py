"""The controls that every table holds: full cache, random, recency and oracle."""

from functools import partial

from policies.declaration import names
from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Needs, Policy

presses = LazyModule("policies.presses.controls")

ANY_LENGTH = Needs(more_tokens_than=0)  # an empty context too
control = partial(Policy, family="control", paper="-", by_default=True)
of_full_cache = partial(
    Policy,
    build=lambda situation: presses.FullPress(),
    budget="keeps everything at any ratio",
    ratio_free_score=True,
    needs=ANY_LENGTH,
)
# It has no kinds of levels: one run of it stands beside every level of all others.
FULL = of_full_cache(
    name=names.FULL,
    family="control",
    paper="-",
    description="The whole cache: what every other row is compared with",
    kinds=(),
    by_default=True,
)
RANDOM = control(
    name=names.RANDOM,
    description="Independent random tokens for every layer, head and example",
    build=lambda situation: presses.RandomControlPress(
        situation.ratio, situation.seed, situation.example_id
    ),
    random=True,
    # The draw knows nothing of the ratio: a higher one evicts what a lower one does, and more.
    ratio_free_score=True,
)
RECENCY = control(
    name=names.RECENCY,
    description="The most recent tokens",
    build=lambda situation: presses.RecencyPress(situation.ratio),
    ratio_free_score=True,
)
ORACLE = control(
    name=names.ORACLE,
    description="Knows the question and keeps its evidence",
    build=lambda situation: presses.OraclePress(
        situation.ratio, situation.answer_tokens, situation.evidence_tokens
    ),
    ratio_free_score=True,
    per_question=True,
)
