"""Claim E3: biased error is far worse than centred error of equal spread."""

from collections.abc import Mapping
from functools import partial

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.errors.tables import BIASED, CENTRED, ERRORS, EVERYWHERE, SCORES, Score
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.texts import E


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    return each_part({score.part: partial(_difference, evidence, score) for score in SCORES})


def _difference(evidence: Mapping[str, Evidence], score: Score) -> Statistic:
    statistic = score.of(evidence, ERRORS)
    centred, biased = (statistic.kept(error, EVERYWHERE, score.column) for error in (CENTRED, BIASED))
    note = f"keeps {biased[0]:.2f} with the bias, {centred[0]:.2f} without"
    return Statistic(biased - centred, statistic.contexts, note=note)


CLAIM = Claim(
    identifier="E3",
    text=E,
    words="Biased error is far worse than centred error of equal spread.",
    reported='"random tokens" where the error is from 0 to 2, against 0.83 where it is from -1 to 1',
    statistic="what uniform(0, 2) keeps, less what uniform(-1, 1) keeps",
    side="below",
    threshold=0.0,
    experiments=ERRORS,
    measure=_measure,
)
