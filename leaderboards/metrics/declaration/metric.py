"""Declares metrics: a metric is a column of the records that says how an answer came out, or what its cache had kept or
cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leaderboards.metrics.declaration.answer import Answer
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.metrics.declaration.kept import Kept
from leaderboards.metrics.declaration.measure import Better, Measure
from leaderboards.metrics.declaration.outcome import Outcome


@dataclass(frozen=True)
class Metric:
    """Everything that follows from a metric: records, summary, board, curves, downloads and pages read it from here.

    A metric that neither an answer, nor how it ended, nor what is kept tells is measured by whoever runs the model.
    """

    name: str  # the column of the records
    type: Any  # of its values: float, int, bool, bytes, a list or a literal; where there is none, the column is null
    unit: str
    better: Better | None
    line: str  # what it is, in one line
    definition: Definition  # what it is, in a paragraph; metrics that belong together share one
    bounds: tuple[float, float] | None = None  # between which every value lies
    required: bool = False  # whether every record has a value, also where the answer failed
    of_answer: Callable[[Answer], object] | None = None  # computes it from what is stored of an answer
    of_kept: Callable[[Kept], object] | None = None  # computes it from what the cache had kept
    of_outcome: Callable[[Outcome], object] | None = None  # computes it from how the answer ended
    measures: tuple[Measure, ...] = ()  # what it comes to in a cell

    @property
    def of_stored(self) -> bool:
        """Tells whether it follows from the stored records of a run, so that those of an earlier version can get it."""
        return self.of_answer is not None or self.of_outcome is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Lists the headings and columns that its definition explains."""
        return (self.name, *(name for measure in self.measures for name in measure.names))
