"""Claim P6: several instructions suffer more than one."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.pitfalls.prompts import HALF, POLICIES, PROMPTS, mean_of, prompts_of, rows_of
from leaderboards.claims.texts import P
from policies.declaration.names import FULL


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    prompts = prompts_of(evidence)
    single, several = (
        mean_of(prompts, rows_of(prompts.directives, POLICIES, HALF, several=is_several), "strict")
        / mean_of(prompts, rows_of(prompts.directives, (FULL,), None, several=is_several), "strict")
        for is_several in (False, True)
    )
    note = f"kept {single[0]:.2f} of single directives, {several[0]:.2f} of several"
    return [Statistic(single - several, prompts.resampler.count, note=note)]


CLAIM = Claim(
    identifier="P6",
    text=P,
    words="Several instructions suffer more than one.",
    reported="yes, without one figure",
    statistic="directives obeyed at a ratio of 0.5 as a share of the full cache's, mean over policies: of prompts with "
    "one directive, less of prompts with several",
    side="above",
    threshold=0.0,
    experiments=(PROMPTS,),
    measure=_measure,
)
