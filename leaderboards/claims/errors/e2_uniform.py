"""Claim E2: centred uniform error keeps most of the score."""

from leaderboards.claims.declaration import Claim
from leaderboards.claims.errors.published import KEPT_BY_UNIFORM, remark_on_uniform
from leaderboards.claims.errors.tables import CENTRED, ERRORS, EVERYWHERE, of_each_score, share_kept
from leaderboards.claims.texts import E

CLAIM = Claim(
    identifier="E2",
    text=E,
    words="An error drawn evenly from -1 to 1 times the value keeps 80 % or more.",
    reported="IFEval 0.83; next token 0.83 and 0.85",
    statistic="score with every value times a factor from 0 to 2, as a share of the full cache's",
    side="at least",
    threshold=KEPT_BY_UNIFORM,
    experiments=ERRORS,
    measure=of_each_score({"": share_kept(CENTRED, EVERYWHERE, ERRORS)}),
    remark=remark_on_uniform(),
)
