"""The measures that tables and curves show, and how their numbers are written."""

from dataclasses import dataclass
from typing import Literal

from leaderboards.row import SummaryRow

Interval = tuple[float, float]


@dataclass(frozen=True)
class Measure:
    """One number of a row. ``value`` and ``interval`` are in the unit of the row, the texts in the unit shown.

    field
        That of the row; the ends of its interval are the fields ``*_low`` and ``*_high``, where there are such.
    factor
        The unit shown is the row's, times this.
    top
        The highest possible value, in the unit shown.
    better
        Which end is good; None for a measure by which nothing is ranked.
    """

    name: str
    field: str
    title: str
    unit: str
    factor: float
    digits: int
    top: float
    better: Literal["higher", "lower"] | None

    def value(self, row: SummaryRow) -> float | None:
        found: float | None = getattr(row, self.field)
        return found

    def interval(self, row: SummaryRow) -> Interval | None:
        low, high = (getattr(row, f"{self.field}_{end}", None) for end in ("low", "high"))
        return None if low is None or high is None else (low, high)

    def text(self, number: float | None) -> str:
        """A number of the row as it is shown; a dash for None."""
        return "–" if number is None else f"{number * self.factor:.{self.digits}f}"


def written_interval(interval: Interval | None, factor: float = 1, digits: int = 0) -> str:
    """Both ends with a dash between them.

    >>> written_interval((0.25, 0.5), factor=100)
    '25–50'
    """
    return "–" if interval is None else "–".join(f"{end * factor:.{digits}f}" for end in interval)


F1 = Measure(
    name="f1",
    field="f1",
    title="F1",
    unit="percent",
    factor=1,
    digits=1,
    top=100,
    better="higher",
)
HALLUCINATION = Measure(
    name="hallucination",
    field="hallucination_rate",
    title="Hallucination rate",
    unit="percent of questions",
    factor=100,
    digits=1,
    top=100,
    better="lower",
)
ABSTENTION = Measure(
    name="abstention",
    field="abstention_rate",
    title="Abstention rate",
    unit="percent of questions",
    factor=100,
    digits=1,
    top=100,
    better=None,
)
GER = Measure(
    name="ger",
    field="ger",
    title="Global Eviction Ratio",
    unit="share of the answer’s tokens",
    factor=1,
    digits=3,
    top=1,
    better="lower",
)
SLOT_COVERAGE = Measure(
    name="slot-coverage",
    field="slot_coverage",
    title="Slot coverage",
    unit="share of the evidence, mean over slots",
    factor=1,
    digits=3,
    top=1,
    better="higher",
)
REALISED_RATIO = Measure(
    name="realised-ratio",
    field="realised_ratio",
    title="Realised ratio",
    unit="share of the cache that is gone",
    factor=1,
    digits=3,
    top=1,
    better=None,
)
OBEYED = Measure(
    name="directives-obeyed",
    field="directives_obeyed",
    title="Directives obeyed",
    unit="percent",
    factor=100,
    digits=1,
    top=100,
    better="higher",
)
LEAKAGE = Measure(
    name="leakage",
    field="leakage",
    title="Leakage",
    unit="percent of the protected text",
    factor=100,
    digits=1,
    top=100,
    better="lower",
)
ANSWERS = (F1, HALLUCINATION, ABSTENTION, GER, SLOT_COVERAGE)  # every task but those without gold answers has these
CURVES = (*ANSWERS, OBEYED, LEAKAGE)
TABLES = (F1, HALLUCINATION, GER, REALISED_RATIO)
