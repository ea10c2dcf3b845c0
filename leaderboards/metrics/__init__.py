"""Metrics: what is measured of an answer and of the cache that it was read from, each declared
once.

Records, summary, board, curves, downloads and the page of method follow from these declarations.
Nothing here needs a model, and nothing heavy is imported."""

from leaderboards.errors import MetricError
from leaderboards.metrics.declaration import (
    Better,
    Heading,
    Interval,
    Measure,
    Metric,
    Over,
    with_columns,
)
from leaderboards.metrics.inputs import Answer, Kept, Outcome, Survival
from leaderboards.metrics.registry import (
    CURVES,
    MEASURES,
    METRICS,
    ON_BOARD,
    TABLES,
    chapter_definitions,
)

__all__ = [
    "CURVES",
    "MEASURES",
    "METRICS",
    "ON_BOARD",
    "TABLES",
    "Answer",
    "Better",
    "Heading",
    "Interval",
    "Kept",
    "Measure",
    "Metric",
    "MetricError",
    "Outcome",
    "Over",
    "Survival",
    "chapter_definitions",
    "with_columns",
]
