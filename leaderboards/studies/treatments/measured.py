"""Measures what a treatment leaves of what leads a task, as a share of what the full cache has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pandas import DataFrame

from leaderboards.aggregate.evidence import Evidence, TaskEvidence
from leaderboards.metrics import METRICS
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from policies.declaration.levels import Level
from policies.declaration.names import FULL
from policies.faults.options import FaultOptions
from policies.faults.registry import KINDS as FAULTS
from policies.quantisation.quantisation import QuantisationOptions
from policies.quantisation.registry import KINDS as FORMATS
from policies.treatments.options import TreatmentKind, is_one_of, kind_in, options_in

OUTCOMES = {"masked": "masked", "corrupted": "corrupted", "due": "DUE"}


@dataclass(frozen=True)
class Damage:
    """A treatment of what the full cache holds: a fault, an error of every number, or fewer bits."""

    policy: str
    options: FaultOptions | QuantisationOptions

    def changed(self, rate: float, dtype: str) -> float:
        """Returns the share of the numbers that a rate changes, by which faults of rows and of bits are compared."""
        return self.options.numbers_hit(rate, dtype) if isinstance(self.options, FaultOptions) else 1.0


def damages(policies: Iterable[str]) -> list[Damage]:
    """Returns the treatments of the full cache among some policies; others are left out, as are compositions."""
    kinds: dict[str, TreatmentKind[FaultOptions | QuantisationOptions]] = {**FAULTS, **FORMATS}
    return [Damage(one, options_in(one, kinds[kind_in(one)])) for one in policies if is_one_of(one, kinds)]


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
        return METRICS[self.column].measures[0].title

    @cached_property
    def clean(self) -> FloatArray:  # what the full cache has, in the unit of the column
        return self.evidence.clean(self.column)

    def kept(self, policy: str, level: Level) -> Estimate:
        """Estimates what a treatment keeps of what the full cache has, as a share."""
        return self.estimate(self.evidence.share_kept(policy, level.value, self.column))

    @cached_property
    def _kinds(self) -> dict[str, str]:
        first = self.evidence.records.drop_duplicates("policy")
        return dict(zip(map(str, first["policy"]), map(str, first["level_kind"]), strict=True))

    def levels(self, policy: str) -> tuple[Level, ...]:
        """Lists the levels of a policy, the least treated first; nothing of one that was not run."""
        values = self.evidence.levels(policy) if policy in self.evidence.policies else ()
        return tuple(Level(self._kinds[policy], value) for value in values)

    def estimate(self, values: FloatArray) -> Estimate:
        """Makes an estimate of values as measured and as resampled; without an interval from a single context."""
        contexts = self.evidence.contexts
        return Estimate.of(float(values[0]), values[1:] if contexts > 1 else None, contexts)

    def row(self, policy: str, level: Level) -> dict[str, Any]:
        """Returns a row of a download: what is kept, and how answers end."""
        cell = {"task": self.name, "policy": policy, "level": level.value, "share_kept": self.kept(policy, level)}
        if self.evidence.records["masked"].isna().all():  # running text has no outcomes
            return {**cell, **dict.fromkeys(OUTCOMES)}
        return {**cell, **{name: float(self.evidence.mean(policy, level.value, name)[0]) for name in OUTCOMES}}


def measured_tasks(records: DataFrame) -> tuple[list[MeasuredTask], list[str]]:
    """Returns the tasks that the model can do with the full cache, and for each of the others why it tells nothing."""
    known, unknown = Evidence(records).mastered(_leading_column)
    return [MeasuredTask(task, _leading_column(task)) for task in known], unknown


def _leading_column(task: TaskEvidence) -> str:
    full = task.records[task.records["policy"] == FULL]
    return next((name for name in ("directives_obeyed", "next_token_accuracy") if full[name].notna().any()), "right")


def policies_in(records: DataFrame) -> Sequence[str]:
    return tuple(map(str, records["policy"].unique()))
