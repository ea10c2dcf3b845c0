"""Claim P4: policies keep spans of instructions unevenly."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.pitfalls.prompts import HALF, POLICIES, PROMPTS, mean, prompts_of, rows_of, rows_with_defence
from leaderboards.claims.texts import P
from leaderboards.studies.instructions.obedience import KEPT, PromptRecords


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    prompts = prompts_of(evidence)
    return each_part({policy: partial(_difference, prompts, policy) for policy in POLICIES})


def _difference(prompts: PromptRecords, policy: str) -> Statistic:
    rows = rows_of(rows_with_defence(prompts.caches), (policy,), HALF)
    defence, directives = (rows[name].to_numpy(dtype=np.float64) for name in KEPT)
    note = f"kept: {defence.mean():.2f} of the defence, {directives.mean():.2f} of the directives"
    return Statistic(mean(prompts, rows, defence - directives), prompts.resampler.count, note=note)


CLAIM = Claim(
    identifier="P4",
    text=P,
    words="Policies keep spans of instructions unevenly.",
    reported="yes, without one figure",
    statistic="the share of the tokens of the defence that are kept at a ratio of 0.5, less that of the directives, "
    "mean over both orders, by policy",
    side="other than",
    threshold=0.0,
    experiments=(PROMPTS,),
    measure=_measure,
)
