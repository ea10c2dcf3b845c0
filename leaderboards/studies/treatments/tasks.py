"""Measures the tasks of a study of treatments: those that the model can do by what is kept of its
answers, and others by the rise of the right answer's negative log-likelihood (NLL) too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.evidence import Evidence, NoEvidenceError, TaskEvidence
from leaderboards.aggregate.leading_measures import DIRECTIVES, QUESTIONS, TEXT, Lead
from leaderboards.aggregate.row import DELTA_NLL
from leaderboards.metrics import METRICS
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from policies.declaration.levels import Level
from policies.declaration.names import FULL

OUTCOMES = {"masked": "masked", "corrupted": "corrupted", "due": "DUE"}
# The first that the full cache has leads: a task with directives may have right answers too.
LEADS: Mapping[str, Lead] = {lead.measures[0].field: lead for lead in (DIRECTIVES, TEXT, QUESTIONS)}
RISE = DELTA_NLL.field


@dataclass(frozen=True)
class MeasuredTask:
    """One task. All arrays have the shape (1 + resamples,) and are drawn with the same resamples of
    contexts, so that they can be subtracted; draws of a random treatment are averaged."""

    evidence: TaskEvidence
    column: str  # of the records: what leads the task
    # Why nothing is judged here: how little the model itself has of the task; empty where it can do
    # it.
    withheld: str

    @classmethod
    def of(cls, evidence: TaskEvidence) -> "MeasuredTask":
        column = _leading_column(evidence)
        return cls(evidence, column, evidence.shortfall(column, LEADS[column].scale))

    @property
    def name(self) -> str:
        return self.evidence.task

    @property
    def label(self) -> str:
        """Returns the name, marked where the model cannot do the task; the head of the page says
        why."""
        if self.withheld:
            return f"{self.name}, no verdicts"
        return self.name

    @property
    def title(self) -> str:
        return METRICS[self.column].measures[0].title

    @property
    def shows_rise(self) -> bool:
        """Tells whether the rise of the likelihood comes first: the model cannot do the task, and
        it was measured."""
        treated = self.evidence.records[self.evidence.records["policy"] != FULL]
        return bool(self.withheld) and bool(treated[RISE].notna().any())

    def kept(self, policy: str, level: Level) -> Estimate | None:
        """Estimates what a treatment keeps of what the full cache has, as a share; None where that
        has nothing."""
        values = self.kept_values(policy, level)
        return None if values is None else self.estimate(values)

    def kept_values(self, policy: str, level: Level) -> FloatArray | None:
        """Returns the same share as measured and as resampled: shape (1 + resamples,)."""
        whole = self.evidence.mean(FULL, None, self.column)
        if not whole[0]:
            return None
        part = self.evidence.mean(policy, level.value, self.column)
        # A resample may draw contexts of which the full cache has nothing.
        undefined = np.full_like(part, np.nan)
        return np.divide(part, whole, out=undefined, where=whole > 0)

    def score(self, policy: str, level: Level | None) -> Estimate:
        """Estimates what leads the task, as a share of its highest value."""
        _, highest = METRICS[self.column].bounds or (0, 1)
        rate = None if level is None else level.value
        return self.estimate(self.evidence.mean(policy, rate, self.column) / highest)

    @property
    def full_score(self) -> Estimate:
        return self.score(FULL, None)

    def rise(self, policy: str, level: Level) -> Estimate | None:
        """Estimates the rise of the right answer's NLL over the full cache, in nats a token; None
        where no answer that did not fail has one."""
        # Without failed answers: they count as 0, which would read as no rise at all.
        try:
            return self.estimate(self.evidence.mean(policy, level.value, RISE, status="ok"))
        except NoEvidenceError:
            return None

    def estimate(self, values: FloatArray) -> Estimate:
        """Makes an estimate of values as measured and as resampled, shape (1 + resamples,); without
        an interval from a single context."""
        contexts = self.evidence.contexts
        resampled = None
        if contexts > 1:
            resampled = values[1:]
        return Estimate.of(float(values[0]), resampled, contexts)

    def row(self, policy: str, level: Level) -> dict[str, Any]:
        """Returns a row of a download: what is kept, how answers end, and the rise of the
        likelihood."""
        row: dict[str, Any] = {"task": self.name, "policy": policy, "level": level.value}
        row["share_kept"] = self.kept(policy, level)
        has_outcomes = not self.evidence.records["masked"].isna().all()  # running text has none
        for name in OUTCOMES:
            row[name] = None
            if has_outcomes:
                row[name] = float(self.evidence.mean(policy, level.value, name)[0])
        row[RISE] = self.rise(policy, level)
        row["not_mastered"] = self.withheld or None
        return row


def measured_tasks(records: DataFrame) -> tuple[list[MeasuredTask], list[str]]:
    """Returns the tasks that the full cache was asked, and for each of the others why it tells
    nothing."""
    measured, reasons = [], []
    for task in map(Evidence(records).of, records["task"].unique()):
        try:
            measured.append(MeasuredTask.of(task))
        except NoEvidenceError as error:
            reasons.append(str(error))
    return measured, reasons


def _leading_column(task: TaskEvidence) -> str:
    full = task.records[task.records["policy"] == FULL]
    for name in LEADS:
        if full[name].notna().any():
            return name
    return "right"
