"""The experiments of text R: policies over ratios, about one fact, chains of facts, and facts about several people."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from datasets_gen import USUAL_TOKENS
from leaderboards.claims.declaration import Experiment, Measure, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError, TaskEvidence
from leaderboards.statistics.bootstrap import FloatArray
from policies.declaration.names import FULL

POLICIES = ("streaming_llm", "snapkv", "knorm", "expected_attention", "h2o")
RATIOS = tuple(round(tenth / 10, 1) for tenth in range(1, 10))
ONE_FACT, SEVERAL_FACTS = "base", ("hops", "multi_entity")
OVER_RATIOS = Experiment(
    name="routes",
    tasks=",".join((ONE_FACT, *SEVERAL_FACTS)),
    policies=",".join(POLICIES),
    levels=(("ratio", ",".join(map(str, RATIOS))),),
    contexts=16,
    context_tokens=USUAL_TOKENS,
)
LOST = 5.0  # points of F1, as for the safe ratio of a board


@dataclass(frozen=True)
class MasteredTasks:
    """The tasks of the experiment that the model can do: what is said of all of them is their mean."""

    tasks: tuple[TaskEvidence, ...]
    left_out: str  # says which it cannot do, if any

    @classmethod
    def of(cls, evidence: Mapping[str, Evidence], name: str = OVER_RATIOS.name) -> "MasteredTasks":
        """Takes the evidence of the experiment of a name; :class:`NoEvidenceError` where the model can do no task."""
        routes, failed = [], []
        for task in evidence[name].tasks:
            of_task = evidence[name].of(task)
            try:
                of_task.clean("f1")
            except NoEvidenceError as error:
                failed.append(str(error))
            else:
                routes.append(of_task)
        if not routes:
            raise NoEvidenceError("; ".join(failed))
        return cls(tuple(routes), f"left out: {'; '.join(failed)}" if failed else "")

    @property
    def contexts(self) -> int:
        return sum(task.contexts for task in self.tasks)

    def mean(self, policy: str, level: float | None, column: str) -> FloatArray:
        """Averages the means of the tasks."""
        means: FloatArray = np.mean([task.mean(policy, level, column) for task in self.tasks], axis=0)
        return means

    def over_ratios(self, column: str) -> FloatArray:
        """Averages the means of all policies at each ratio, the full cache first: shape (1 + resamples, ratios + 1)."""
        means = [np.mean([self.mean(policy, ratio, column) for policy in POLICIES], axis=0) for ratio in RATIOS]
        return np.stack([self.mean(FULL, None, column), *means], axis=1)


def of_both_rates(measure: Callable[[MasteredTasks, str], Statistic]) -> Measure:
    """Measures something of the rate of made-up answers, among all and among those that state something: its second
    argument is the column that these have, if any."""

    def of_evidence(evidence: Mapping[str, Evidence]) -> Measured:
        routes = MasteredTasks.of(evidence)
        rates = {"hallucinated, of all answers": "", "hallucinated, of those that state something": "answered"}
        return each_part({part: partial(measure, routes, column) for part, column in rates.items()})

    return of_evidence


def holds_up_to(of_task: TaskEvidence, policy: str) -> FloatArray:
    """Returns the ratio at which the loss of F1 against the full cache first reaches 5 points, on the line between two
    ratios, and the highest ratio where it never does: shape (1 + resamples,).

    It is the safe ratio of a board as a number that resamples can have: that one asks for the upper end of an interval
    of each loss, which a resample has not.
    """
    whole = of_task.clean("f1")
    losses = np.stack([whole - whole, *(whole - of_task.mean(policy, ratio, "f1") for ratio in RATIOS)], axis=1)
    ratios = np.array([0.0, *RATIOS])
    too_much = losses >= LOST
    place = np.where(too_much.any(axis=1), too_much.argmax(axis=1), len(RATIOS))
    rows = np.arange(len(losses))
    before, after = losses[rows, place - 1], losses[rows, place]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(too_much.any(axis=1), (LOST - before) / (after - before), 1.0)
    crossed: FloatArray = ratios[place - 1] + share * (ratios[place] - ratios[place - 1])
    return crossed


def gap(one: TaskEvidence, other: TaskEvidence, note: str) -> Statistic:
    """Measures that ratio, the mean over the policies, on one set of records less that on another. ``note`` has a place
    for each."""
    first, second = (np.mean([holds_up_to(records, policy) for policy in POLICIES], axis=0) for records in (one, other))
    return Statistic(first - second, min(one.contexts, other.contexts), note=note.format(first[0], second[0]))
