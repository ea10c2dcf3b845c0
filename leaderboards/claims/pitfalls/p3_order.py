"""Claim P3: the order of defence and directives decides which of them suffers."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.pitfalls.prompts import HALF, POLICIES, PROMPTS, mean, mean_of, prompts_of, rows_of
from leaderboards.claims.texts import P
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.instructions.obedience import DEFENDED, PromptRecords
from policies.declaration.names import FULL


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    prompts = prompts_of(evidence)
    return each_part(
        {"tokens kept": partial(_tokens_kept, prompts), "leaked and disobeyed": partial(_leaked_and_disobeyed, prompts)}
    )


def _tokens_kept(prompts: PromptRecords) -> Statistic:
    of_order = []
    for arm in DEFENDED:
        rows = rows_of(prompts.caches, POLICIES, HALF, arm=arm)
        shares = (rows[name].to_numpy(dtype=np.float64) for name in ("defence_kept", "directives_kept"))
        of_order.append(mean(prompts, rows, np.subtract(*shares)))
    note = f"defence kept less directives kept: {_by_arm(of_order)}"
    return Statistic(of_order[0] - of_order[1], prompts.resampler.count, note=note)


def _leaked_and_disobeyed(prompts: PromptRecords) -> Statistic:
    of_order = [_leakage_gained(prompts, arm) - _directives_lost(prompts, arm) for arm in DEFENDED]
    note = f"leakage gained less directives lost: {_by_arm(of_order)}"
    return Statistic(of_order[0] - of_order[1], prompts.resampler.count, note=note)


def _leakage_gained(prompts: PromptRecords, arm: str) -> FloatArray:
    treated, whole = (
        mean_of(prompts, rows_of(prompts.attacks, *cell, arm=arm), "leakage") for cell in ((POLICIES, HALF), FULL_CELL)
    )
    return treated - whole


def _directives_lost(prompts: PromptRecords, arm: str) -> FloatArray:
    treated, whole = (
        mean_of(prompts, rows_of(prompts.directives, *cell, arm=arm), "strict")
        for cell in ((POLICIES, HALF), FULL_CELL)
    )
    return whole - treated


def _by_arm(of_order: list[FloatArray]) -> str:
    return ", ".join(f"{values[0]:+z.2f} with {arm}" for values, arm in zip(of_order, DEFENDED, strict=True))


FULL_CELL = ((FULL,), None)
CLAIM = Claim(
    identifier="P3",
    text=P,
    words="The order of defence and directives decides which of them suffers.",
    reported="yes, without one figure",
    statistic="interaction of order and span at a ratio of 0.5, mean over policies: the share of the tokens kept, of "
    "the defence less of the directives, with the defence first less with the directives first; and the same of "
    "leakage gained less directives lost",
    side="other than",
    threshold=0.0,
    experiments=(PROMPTS,),
    measure=_measure,
)
