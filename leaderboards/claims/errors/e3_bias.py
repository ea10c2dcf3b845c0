"""Claim E3: biased error is far worse than centred error of equal spread."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.errors.tables import BIASED, CENTRED, ERRORS, EVERYWHERE, SCORES
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.texts import E


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    found = []
    for score in SCORES:
        of_task = score.of(evidence, ERRORS)
        centred, biased = (of_task.kept(error, EVERYWHERE, score.column) for error in (CENTRED, BIASED))
        note = f"keeps {biased[0]:.2f} with the bias, {centred[0]:.2f} without"
        found.append(Statistic(biased - centred, of_task.contexts, score.part, note))
    return found


CLAIM = Claim(
    identifier="E3",
    text=E,
    words="Biased error is far worse than centred error of equal spread.",
    reported='"random tokens" where the error is from 0 to 2, against 0.83 where it is from -1 to 1',
    statistic="what uniform(0, 2) keeps, less what uniform(-1, 1) keeps",
    side="below",
    threshold=0.0,
    experiments=(ERRORS,),
    measure=_measure,
)
