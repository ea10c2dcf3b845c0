"""Claim E4: wrong signs are far worse than the same error without a change of sign."""

from leaderboards.claims.declaration import Claim
from leaderboards.claims.errors.tables import FLIPPED, FLIPPED_SHARE, SAME_SIGN, SIGNS, difference, of_each_score
from leaderboards.claims.texts import E

NOTE = "keeps {:.2f} with wrong signs, {:.2f} without"
CLAIM = Claim(
    identifier="E4",
    text=E,
    words="Wrong signs are far worse than an error of the same size that changes no sign.",
    reported='"catastrophic", without a figure',
    statistic="what sign flips of 5 % of the values keep, less what an equal root mean square error without flips does",
    side="below",
    threshold=0.0,
    experiments=SIGNS,
    measure=of_each_score({"": difference(FLIPPED, SAME_SIGN, FLIPPED_SHARE, SIGNS, NOTE)}),
    because="Wrong signs cost little where they are few and an answer has other ways. In the keys of `reference`, "
    "flips of 5 % of the values leave 94 % right, the same share of whole rows 88, and an error of the "
    "same size on all values, of no wrong sign, 91 (95 with the full cache): flips leave most values of a "
    "key as they were, the other error leaves none. `reference-qwen`: 97, 97 and 92. In the values alone "
    "neither costs a point.",
)
