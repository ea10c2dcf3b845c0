"""Declares claims: what a text says, the experiment that puts it to the test, and the number that
decides.

The claims of a text stand in a module of ``leaderboards/claims/texts``, in its tuple ``CLAIMS``.
Their thresholds were written down before anything was run. ``docs/claims.md`` tells why verdicts
contradict a text.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np

from leaderboards.aggregate.evidence import NoEvidenceError, PreconditionError, TooFewError
from leaderboards.statistics.bootstrap import FloatArray

# They follow the name of an experiment that another model takes too: one of another architecture,
# or a larger one.
BESIDE, LARGER = " of the model beside it", " of the larger model"
# A difference can be shown and equality cannot: a claim "other than" a number holds, or is
# undecided.
Side = Literal["at least", "at most", "above", "below", "other than"]


@dataclass(frozen=True)
class Text:
    letter: str  # with which the identifiers of its claims begin
    title: str
    models: str  # that it was about


@dataclass(frozen=True)
class Experiment:
    """Says what has to be run for a claim: the options of a run. Claims with equal experiments
    share one run."""

    name: str
    tasks: str
    policies: str
    levels: tuple[tuple[str, str], ...]  # kind, and the text of its option
    contexts: int
    repeats: int = 1
    mode: Literal["agnostic", "aware"] = "agnostic"
    suite: str | None = None
    observe: str | None = None  # tables
    context_tokens: int | None = None  # tokens of every context; None: each task's own length


@dataclass(frozen=True)
class Statistic:
    """A number that a claim is about. ``values``: as measured, then of each resample, shape (1 +
    resamples,); NaN where there is none, which what is divided by 0 becomes. ``n``: the contexts
    that it rests on."""

    values: FloatArray
    n: int
    part: str = ""  # of the claim: a policy, or a setting, where there are several
    note: str = ""  # what else the same records say, such as which tasks are left out
    # Why there is no verdict although there is a number: the model cannot do the task.
    withheld: str = ""

    def __post_init__(self) -> None:
        # Infinity too is what a division by 0 leaves, and would be an end of an interval.
        values = np.where(np.isfinite(self.values), self.values, np.nan)
        object.__setattr__(self, "values", values)


@dataclass(frozen=True)
class NoStatistic:
    """Stands for a part of a claim that the records cannot decide, and says why."""

    part: str
    reason: str
    is_unmet: bool = False  # the model does not meet what the claim takes
    # How many times as many contexts would be enough, where that can be told.
    times: float = math.inf

    @classmethod
    def of(cls, part: str, error: NoEvidenceError) -> Self:
        """Tells why a part has no statistic, as the error says."""
        times = error.times if isinstance(error, TooFewError) else math.inf
        return cls(part, str(error), isinstance(error, PreconditionError), times)


Measured = Sequence[Statistic | NoStatistic]


@np.errstate(invalid="ignore", divide="ignore")  # a resample that has nothing to divide by is NaN
def each_part(parts: Mapping[str, Callable[..., Statistic]], *evidence: object) -> Measured:
    """Measures the parts of a claim by their names: where one lacks evidence, the others are judged
    all the same."""
    results: list[Statistic | NoStatistic] = []
    for part, measure in parts.items():
        try:
            results.append(replace(measure(*evidence), part=part))
        except NoEvidenceError as error:
            results.append(NoStatistic.of(part, error))
    return results


@dataclass(frozen=True)
class Claim:
    identifier: str
    text: Text
    words: str  # what the text says, in one line
    reported: str  # the numbers that it gives
    statistic: str  # what is measured, in one sentence
    holds: tuple[Side, float]  # on which side of the threshold the statistic has to lie
    experiments: tuple[Experiment, ...]
    # Of the Evidence of each experiment, in the order of ``evidence``.
    measure: Callable[..., Measured]
    unit: str = ""  # of the statistic
    other: str = ""  # BESIDE or LARGER: the model that it compares the model with, if it does
    # Of arguments of its suite, the values of which the run has to have one, as it is measured in
    # nothing else.
    takes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def side(self) -> Side:
        """Returns the side of the threshold on which the statistic has to lie."""
        return self.holds[0]

    @property
    def threshold(self) -> float:
        """Returns the threshold, in the unit of the statistic."""
        return self.holds[1]

    @property
    def evidence(self) -> tuple[str, ...]:
        """Names the evidence that it takes: experiments, and the same of the other model."""
        names = tuple(experiment.name for experiment in self.experiments)
        return (*names, *(name + self.other for name in names if self.other))
