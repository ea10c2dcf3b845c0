"""Measures what a treatment leaves of what leads a task, as a share of what the full cache has."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.evidence import Evidence, NoEvidenceError, TaskEvidence
from leaderboards.metrics import METRICS
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from policies.declaration.names import FULL

OUTCOMES = ("masked", "corrupted", "due")


@dataclass(frozen=True)
class MeasuredTask:
    """One task that the model can do. All arrays have the shape (1 + resamples,) and are drawn with the same
    resamples of contexts, so that they can be subtracted; draws of a random treatment are averaged."""

    evidence: TaskEvidence
    column: str  # of the records: what leads the task

    @property
    def name(self) -> str:
        return self.evidence.task

    @property
    def title(self) -> str:
        """Names what leads the task, as boards do."""
        return METRICS[self.column].measures[0].title

    @property
    def has_outcomes(self) -> bool:
        """Tells whether its answers have an outcome: running text has none."""
        return bool(self.evidence.records["masked"].notna().any())

    @cached_property
    def clean(self) -> FloatArray:
        """Returns what the full cache has, in the unit of the column."""
        return self.evidence.clean(self.column)

    def share_kept(self, policy: str, level: float | None = None) -> FloatArray:
        """Returns what a treatment keeps of what the full cache has, as a share."""
        with np.errstate(invalid="ignore", divide="ignore"):
            share: FloatArray = self.evidence.mean(policy, level, self.column) / self.clean
        return share

    def area(self, policy: str) -> FloatArray:
        """Returns the mean height of the curve of what is kept over all its levels, from the untreated cache on."""
        levels = [level for level in self.evidence.levels(policy) if level]
        return self.evidence.area(policy, levels, self.column)

    def outcomes(self, policy: str, level: float) -> dict[str, float]:
        """Returns the shares of answers that are masked, corrupted and DUE."""
        return {name: float(self.evidence.mean(policy, level, name)[0]) for name in OUTCOMES}

    def levels(self, policy: str) -> tuple[float, ...]:
        return self.evidence.levels(policy)

    def estimate(self, values: FloatArray) -> Estimate:
        """Makes an estimate of values as measured and as resampled; without an interval from a single context."""
        contexts = self.evidence.contexts
        return Estimate.of(float(values[0]), values[1:] if contexts > 1 else None, contexts)


def measured_tasks(records: DataFrame) -> tuple[list[MeasuredTask], list[str]]:
    """Returns the tasks that the model can do with the full cache, and for each of the others why it tells nothing."""
    evidence, known, unknown = Evidence(records), [], []
    for task in evidence.tasks:
        of_task = evidence.of(task)
        full = of_task.records[of_task.records["policy"] == FULL]
        column = next((name for name in ("directives_obeyed", "next_token_accuracy") if full[name].notna().any()), "")
        measured = MeasuredTask(of_task, column or "right")
        try:
            assert measured.clean.size
            known.append(measured)
        except NoEvidenceError as error:
            unknown.append(str(error))
    return known, unknown


def facts_of(tasks: Sequence[MeasuredTask], unknown: Sequence[str], records: DataFrame) -> list[tuple[str, str]]:
    """Tells at the top of a page what the full cache has, from how many contexts, and what tells nothing."""
    return [
        *((f"Full cache, {task.name}", f"{task.title} {task.clean[0]:.3g}") for task in tasks),
        ("Contexts", ", ".join(f"{task.evidence.contexts} of {task.name}" for task in tasks) or "none"),
        ("Draws of each", str(1 + int(records["repeat"].max()))),
        *(("Tells nothing", reason) for reason in unknown),
    ]


def kept_cells(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> list[dict[str, object]]:
    """Returns the rows of a download: what is kept with each policy at each level, and how answers end."""
    return [
        {
            "task": task.name,
            "policy": policy,
            "level": level,
            "share_kept": task.estimate(task.share_kept(policy, level)),
            **(task.outcomes(policy, level) if task.has_outcomes else dict.fromkeys(OUTCOMES)),
        }
        for task in tasks
        for policy in policies
        if policy in task.evidence.policies
        for level in task.levels(policy)
    ]


def policies_in(records: DataFrame) -> Sequence[str]:
    return tuple(map(str, records["policy"].unique()))
