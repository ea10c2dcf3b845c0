"""Claim P1: some instructions are dropped long before others."""

from collections.abc import Mapping

import numpy as np

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import LEAST_CLEAN, Evidence, NoEvidenceError
from leaderboards.claims.pitfalls.prompts import HALF, MORE, POLICIES, PROMPTS, prompts_of, rows_of
from leaderboards.claims.texts import P
from leaderboards.studies.instructions.obedience import by_family, spearman
from policies.declaration.names import FULL


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    prompts = prompts_of(evidence)
    whole = by_family(prompts.resampler, rows_of(prompts.directives, (FULL,), None), prompts.families)
    half, more = (
        by_family(prompts.resampler, rows_of(prompts.directives, POLICIES, level), prompts.families)
        for level in (HALF, MORE)
    )
    obeyed = whole[0] >= LEAST_CLEAN
    if obeyed.sum() < 2:
        raise NoEvidenceError("instructions: the full cache obeys fewer than two families of directives")
    with np.errstate(invalid="ignore", divide="ignore"):
        kept = half[:, obeyed] / whole[:, obeyed]
    families = np.array(prompts.families)[obeyed]
    ranks = ", ".join(
        f"{spearman(part[:1], whole[:1])[0]:.2f} at {level.value:g}" for part, level in ((half, HALF), (more, MORE))
    )
    note = (
        f"most is kept of {families[kept[0].argmax()]} ({kept[0].max():.2f}), least of {families[kept[0].argmin()]} "
        f"({kept[0].min():.2f}); rank correlation of the families with the full cache {ranks}"
    )
    return [Statistic(kept.max(axis=1) - kept.min(axis=1), prompts.resampler.count, note=note)]


CLAIM = Claim(
    identifier="P1",
    text=P,
    words="Some instructions are dropped long before others.",
    reported="yes, and the rank correlation of the families with the full cache falls",
    statistic="directives obeyed at a ratio of 0.5 as a share of the full cache's, mean over policies: the family that "
    "keeps most above the one that keeps least (families of which the full cache obeys half; it is the largest of many "
    "differences, so that chance makes it larger by about its standard error)",
    side="above",
    threshold=0.2,
    experiments=(PROMPTS,),
    measure=_measure,
)
