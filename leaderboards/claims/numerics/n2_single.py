"""Claim N2: with and without the cache, answers are equal in 32 bits."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Claim, Measured, NoStatistic, Statistic
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.numerics.walked import WALKED, differing
from leaderboards.claims.texts import N
from leaderboards.statistics.significance import highest_unseen_share

NEVER = 0.05


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    rows, share = differing(evidence, "float32")
    contexts = rows["draw_id"].nunique()
    # Resamples of pairs that are all equal do not vary, which shows nothing of contexts that were not asked.
    if not share[0] and (highest := highest_unseen_share(contexts)) > NEVER:
        reason = f"none of {len(rows)} pairs of {contexts} contexts differs, which leaves up to {highest:.2f} possible"
        return [NoStatistic("", reason)]
    return [Statistic(share, contexts, note=f"{rows['flip'].notna().sum()} of {len(rows)} pairs")]


CLAIM = Claim(
    identifier="N2",
    text=N,
    words="In 32 bits, decoding with the cache gives the tokens that it gives without it.",
    reported="in 0 % of cases other tokens, in FP32",
    statistic="share of the answers in float32 that have another token with the cache than without it, each going on "
    "from its own tokens, greedy; where none has, it takes so many contexts that a share above the threshold would "
    "have been seen",
    side="at most",
    threshold=NEVER,
    experiments=(WALKED,),
    measure=_measure,
)
