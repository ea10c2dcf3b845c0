"""Claim E3: biased error is far worse than centred error of equal spread."""

from leaderboards.claims.declaration import Claim
from leaderboards.claims.errors.tables import BIASED, CENTRED, ERRORS, EVERYWHERE, difference, of_each_score
from leaderboards.claims.texts import E

NOTE = "keeps {:.2f} with the bias, {:.2f} without"
CLAIM = Claim(
    identifier="E3",
    text=E,
    words="Biased error is far worse than centred error of equal spread.",
    reported='"random tokens" where the error is from 0 to 2, against 0.83 where it is from -1 to 1',
    statistic="what uniform(0, 2) keeps, less what uniform(-1, 1) keeps",
    side="below",
    threshold=0.0,
    experiments=ERRORS,
    measure=of_each_score({"": difference(BIASED, CENTRED, EVERYWHERE, ERRORS, NOTE)}),
)
