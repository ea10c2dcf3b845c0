"""The measures that tables and curves show, and how their numbers are written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from leaderboards.row import SummaryRow

Interval = tuple[float, float]


@dataclass(frozen=True)
class Measure:
    """One number of a row. ``value`` and ``interval`` are in the unit of the row, the texts in the unit shown.

    factor
        The unit shown is the row's, times this.
    top
        The highest possible value, in the unit shown.
    better
        Which end is good; None for a measure by which nothing is ranked.
    beside, detail
        What stands under each value of a table, and how to write it; a dash where the row has none.
    """

    name: str
    title: str
    unit: str
    factor: float
    digits: int
    top: float
    better: Literal["higher", "lower"] | None
    value: Callable[[SummaryRow], float | None]
    interval: Callable[[SummaryRow], Interval | None]
    beside: str
    detail: Callable[[SummaryRow], str]

    def text(self, number: float | None) -> str:
        """A number of the row as it is shown; a dash for None."""
        return "–" if number is None else f"{number * self.factor:.{self.digits}f}"


def _pair(low: float | None, high: float | None) -> Interval | None:
    return None if low is None or high is None else (low, high)


def written_interval(interval: Interval | None, factor: float = 1, digits: int = 0) -> str:
    """Both ends with a dash between them.

    >>> written_interval((0.25, 0.5), factor=100)
    '25–50'
    """
    return "–" if interval is None else "–".join(f"{end * factor:.{digits}f}" for end in interval)


def written_bytes(count: float | None) -> str:
    """A count of bytes in decimal units, three digits at least.

    >>> written_bytes(1_234_567)
    '1.23 MB'
    """
    if count is None:
        return "–"
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            size = count / 10**power
            return f"{size:.{2 if size < 10 else 1 if size < 100 else 0}f} {unit}"
    return f"{count:.0f} B"


F1 = Measure(
    name="f1",
    title="F1",
    unit="percent",
    factor=1,
    digits=1,
    top=100,
    better="higher",
    value=lambda row: row.f1,
    interval=lambda row: _pair(row.f1_low, row.f1_high),
    beside="95 % interval",
    detail=lambda row: written_interval(_pair(row.f1_low, row.f1_high)),
)
HALLUCINATION = Measure(
    name="hallucination",
    title="Hallucination rate",
    unit="percent of questions",
    factor=100,
    digits=1,
    top=100,
    better="lower",
    value=lambda row: row.hallucination_rate,
    interval=lambda row: _pair(row.hallucination_rate_low, row.hallucination_rate_high),
    beside="95 % interval",
    detail=lambda row: written_interval(_pair(row.hallucination_rate_low, row.hallucination_rate_high), factor=100),
)
ABSTENTION = Measure(
    name="abstention",
    title="Abstention rate",
    unit="percent of questions",
    factor=100,
    digits=1,
    top=100,
    better=None,
    value=lambda row: row.abstention_rate,
    interval=lambda row: _pair(row.abstention_rate_low, row.abstention_rate_high),
    beside="95 % interval",
    detail=lambda row: written_interval(_pair(row.abstention_rate_low, row.abstention_rate_high), factor=100),
)
GER = Measure(
    name="ger",
    title="Global Eviction Ratio",
    unit="share of the answer’s tokens",
    factor=1,
    digits=3,
    top=1,
    better="lower",
    value=lambda row: row.ger,
    interval=lambda row: _pair(row.ger_low, row.ger_high),
    beside="slot coverage of the evidence; the bars are the GER of each layer taken alone",
    detail=lambda row: "–" if row.slot_coverage is None else f"{row.slot_coverage:.2f}",
)
SLOT_COVERAGE = Measure(
    name="slot-coverage",
    title="Slot coverage",
    unit="share of the evidence, mean over slots",
    factor=1,
    digits=3,
    top=1,
    better="higher",
    value=lambda row: row.slot_coverage,
    interval=lambda row: _pair(row.slot_coverage_low, row.slot_coverage_high),
    beside="95 % interval",
    detail=lambda row: written_interval(_pair(row.slot_coverage_low, row.slot_coverage_high), digits=2),
)
REALISED_RATIO = Measure(
    name="realised-ratio",
    title="Realised ratio",
    unit="share of the cache that is gone",
    factor=1,
    digits=3,
    top=1,
    better=None,
    value=lambda row: row.realised_ratio,
    interval=lambda row: None,
    beside="mean tokens read in a head, mean bytes held for one context",
    detail=lambda row: "–" if row.kept_tokens is None else f"{row.kept_tokens:.0f}, {written_bytes(row.kv_bytes)}",
)
OBEYED = Measure(
    name="directives-obeyed",
    title="Directives obeyed",
    unit="percent",
    factor=100,
    digits=1,
    top=100,
    better="higher",
    value=lambda row: row.directives_obeyed,
    interval=lambda row: _pair(row.directives_obeyed_low, row.directives_obeyed_high),
    beside="95 % interval",
    detail=lambda row: written_interval(_pair(row.directives_obeyed_low, row.directives_obeyed_high), factor=100),
)
LEAKAGE = Measure(
    name="leakage",
    title="Leakage",
    unit="percent of the protected text",
    factor=100,
    digits=1,
    top=100,
    better="lower",
    value=lambda row: row.leakage,
    interval=lambda row: _pair(row.leakage_low, row.leakage_high),
    beside="95 % interval",
    detail=lambda row: written_interval(_pair(row.leakage_low, row.leakage_high), factor=100),
)
ANSWERS = (F1, HALLUCINATION, ABSTENTION, GER, SLOT_COVERAGE)  # every task but those without gold answers has these
CURVES = (*ANSWERS, OBEYED, LEAKAGE)
TABLES = (F1, HALLUCINATION, GER, REALISED_RATIO)
