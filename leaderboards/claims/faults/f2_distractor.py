"""Claim F2: structured noise is survivable."""

from leaderboards.claims.declaration import Claim
from leaderboards.claims.faults.noise import DISTRACTOR, KINDS_OF_NOISE, share_kept
from leaderboards.claims.texts import F

CLAIM = Claim(
    identifier="F2",
    text=F,
    words="Structured noise is survivable.",
    reported="with 30 % of the entries from another prompt 0.50 of 0.87 are right (7B), and 0.07 of 0.66 (1.5B)",
    statistic="right answers with 30 % of the entries from another context, as a share of the full cache's",
    side="at least",
    threshold=0.5,
    experiments=(KINDS_OF_NOISE,),
    measure=share_kept(DISTRACTOR, 0.3),
    remark="The text's small model keeps 0.07 / 0.66 = 0.11 of its score, which does not bear out its own sentence.",
)
