"""Claim N2: with and without the cache, answers are equal in 32 bits."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Claim, Measured, NoStatistic
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.numerics.walked import WALKED, pairs_of, statistic_of
from leaderboards.claims.texts import N
from leaderboards.statistics.significance import highest_unseen_share
from leaderboards.studies.numerics.pairs import FREE

NEVER = 0.05


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    rows = pairs_of(evidence, FREE, "float32")
    differs, contexts = rows["flip"].notna(), rows["draw_id"].nunique()
    # Resamples of pairs that are all equal do not vary, which shows nothing of contexts that were not asked.
    if not differs.any() and (highest := highest_unseen_share(contexts)) > NEVER:
        reason = f"none of {len(rows)} pairs of {contexts} contexts differs, which leaves up to {highest:.2f} possible"
        return [NoStatistic("", reason)]
    return [statistic_of(evidence, rows, differs, f"{differs.sum()} of {len(rows)} pairs")]


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
