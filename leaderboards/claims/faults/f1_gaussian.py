"""Claim F1: a little Gaussian noise is catastrophic."""

from leaderboards.claims.declaration import Claim
from leaderboards.claims.faults.noise import GAUSSIAN, KINDS_OF_NOISE, share_kept
from leaderboards.claims.texts import F

CLAIM = Claim(
    identifier="F1",
    text=F,
    words="A little Gaussian noise is catastrophic.",
    reported="at 2 % of the entries 0.02 of 0.87 (7B) and 0.00 of 0.66 (1.5B) are right",
    statistic="right answers at 2 % of the entries, drawn anew at every step, as a share of the full cache's",
    side="at most",
    threshold=0.2,
    experiments=(KINDS_OF_NOISE,),
    measure=share_kept(GAUSSIAN, 0.02),
    because="Noise of spread 1 is no wider than the rows of this cache; noise of spread 8 leaves no answer right. On "
    "`reference` keys have a spread of "
    "1.1 to 1.5 by layer and values one of 0.2 to 0.9, so that noise of a spread of 1 is a row like "
    "others, and an answer has other ways. With a spread of 4 the same 2 % leave 79 % right (95 with the "
    "full cache), with 8 and with 16 none: from there on the claim holds. Noise of the mean and spread of "
    "each layer leaves 95. `reference-qwen`: 64, 0, 0 and 97.",
)
