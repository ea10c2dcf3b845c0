"""Claim F3: rows of another prompt hurt least, then zeros, then Gaussian noise."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.faults.noise import DISTRACTOR, GAUSSIAN, KINDS_OF_NOISE, RATES, TASK, ZEROS
from leaderboards.claims.texts import F


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    of_task = evidence[KINDS_OF_NOISE.name].of(TASK)
    distractor, zeros, gaussian = (of_task.area(kind, RATES) for kind in (DISTRACTOR, ZEROS, GAUSSIAN))
    return [
        Statistic(distractor - zeros, of_task.contexts, "distractor above zeros"),
        Statistic(zeros - gaussian, of_task.contexts, "zeros above gaussian"),
    ]


CLAIM = Claim(
    identifier="F3",
    text=F,
    words="Rows of another prompt hurt least, then zeros, then Gaussian noise.",
    reported="at every rate up to 0.3",
    statistic="difference of the areas under what is kept over rates up to 0.3, same contexts and draws",
    side="above",
    threshold=0.0,
    experiments=(KINDS_OF_NOISE,),
    measure=_measure,
    because="A key of zeros draws little attention, but a key of another context draws it to itself. In the keys "
    "alone, at 30 %, "
    "zeros leave 85 % right on `reference` and a distractor 76; in the values alone they leave 95 and 94. "
    "`reference-qwen`: 81 and 68 in the keys, 97 and 94 in the values.",
)
