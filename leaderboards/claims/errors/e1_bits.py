"""Claim E1: 8 and 4 bits keep the control."""

from leaderboards.claims.declaration import Claim
from leaderboards.claims.errors.published import KEPT_BY_BITS, remark_on_bits
from leaderboards.claims.errors.tables import BITS, QUANTISED, of_each_score, share_kept
from leaderboards.claims.texts import E

CLAIM = Claim(
    identifier="E1",
    text=E,
    words="8 and 4 bits keep 98 % of the control.",
    reported="IFEval 0.98 and 0.98; next token 0.91 and 1.15 (the text calls it an outlier)",
    statistic="score with the quantised cache as a share of the full cache's",
    side="at least",
    threshold=KEPT_BY_BITS,
    experiments=QUANTISED,
    measure=of_each_score({bits: share_kept(bits, None, QUANTISED) for bits in BITS}),
    remark=remark_on_bits(),
)
