"""The experiments of text E: every value of the cache is off by an error, or is stored in fewer bits."""

from collections.abc import Mapping
from dataclasses import dataclass

from leaderboards.claims.declaration import Experiment
from leaderboards.claims.evidence import Evidence, TaskEvidence


@dataclass(frozen=True)
class Score:
    """What text E scores: directives obeyed, and right answers in the place of next tokens."""

    task: str
    column: str
    part: str

    def of(self, evidence: Mapping[str, Evidence], experiment: Experiment) -> TaskEvidence:
        return evidence[experiment.name].of(self.task)


OBEYED = Score("instructions", "directives_obeyed", "directives obeyed")
RIGHT = Score("base", "right", "right answers")
SCORES = (OBEYED, RIGHT)
TASKS = ",".join(score.task for score in SCORES)

EVERYWHERE = 1.0  # the share of the values that is off
CENTRED = "multiplicative_uniform"  # by a factor from 0 to 2
BIASED = "multiplicative_uniform(low=0,high=2)"
WIDE = "multiplicative_uniform(low=-1.5,high=1.5)"
STDS = (0.1, 0.25, 0.5)
NORMALS = tuple("multiplicative_normal" if std == 0.5 else f"multiplicative_normal(std={std:g})" for std in STDS)
FLIPPED_SHARE = 0.05  # of the values
FLIPPED, SAME_SIGN = "sign_flip", "same_sign"

QUANTISED = Experiment("quantised", TASKS, "int8,int4", (), contexts=24)
ERRORS = Experiment(
    name="errors",
    tasks=TASKS,
    policies=",".join((CENTRED, BIASED, WIDE, *NORMALS)),
    levels=(("rate", f"{EVERYWHERE:g}"),),
    contexts=24,
    repeats=2,
)
SIGNS = Experiment(
    name="signs",
    tasks=TASKS,
    policies=f"{FLIPPED},{SAME_SIGN}",
    levels=(("rate", f"{FLIPPED_SHARE:g}"),),
    contexts=24,
    repeats=2,
)
