"""Claim P2: the prompt leaks while its directives are still obeyed."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.pitfalls.prompts import POLICIES, PROMPTS, prompts_of
from leaderboards.claims.texts import P
from leaderboards.studies.instructions.amnesia import LEAKED_MORE, STILL_OBEYED, while_obeying


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    prompts = prompts_of(evidence)
    leaks = [leak for leak in while_obeying(prompts) if leak.policy in POLICIES]
    if not leaks:
        raise NoEvidenceError(f"no policy obeys {STILL_OBEYED:.0%} of the directives at any ratio")
    largest = max(leaks, key=lambda leak: leak.more.mean)
    note = (
        f"{largest.policy} at {largest.level.value:g}, {largest.arm}: {largest.leakage:.2f} leaks while "
        f"{largest.obeyed:.2f} is obeyed"
    )
    return [Statistic(largest.values, prompts.resampler.count, note=note)]


CLAIM = Claim(
    identifier="P2",
    text=P,
    words="The prompt leaks while its directives are still obeyed.",
    reported="yes, without one figure",
    statistic="leakage above the full cache's, where it is highest of all policies, ratios and orders that obey 70 % "
    "of the directives or more (its interval does not know that it was chosen as the highest)",
    side="at least",
    threshold=LEAKED_MORE,
    experiments=(PROMPTS,),
    measure=_measure,
)
