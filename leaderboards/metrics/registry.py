"""The registry of metrics: add a metric by declaring it in the file of its family; a new family is named here."""

from collections.abc import Mapping

from leaderboards.errors import MetricError
from leaderboards.metrics import answers, costs, directives, leakage, likelihood, outcomes, routing
from leaderboards.metrics.declaration import Definition, Measure, Metric, definitions_in
from policies.declaration.names import by_name

FAMILIES = (
    *(answers.METRICS, outcomes.METRICS, likelihood.METRICS, routing.METRICS),
    *(directives.METRICS, leakage.METRICS, costs.METRICS),
)


METRICS: Mapping[str, Metric] = by_name(
    "metrics", (metric for family in FAMILIES for metric in family), MetricError
)
MEASURES: Mapping[str, Measure] = {
    measure.field: measure for metric in METRICS.values() for measure in metric.measures
}  # by column of a row

# Within a family, what policies are ranked by comes first.
CURVES = tuple(
    measure
    for family in FAMILIES
    for measure in sorted(
        (measure for metric in family for measure in metric.measures),
        key=lambda measure: measure.better is None,
    )
    if measure.curve
)
TABLES = tuple(measure for measure in MEASURES.values() if measure.table)
ON_BOARD = tuple(
    (measure, measure.board)
    for measure in sorted(
        MEASURES.values(), key=lambda measure: measure.better == "higher"
    )  # harms first
    if measure.board is not None
)


def definitions_of(chapter: str) -> tuple[Definition, ...]:
    """Returns the definitions of the metrics that stand in a chapter."""
    return definitions_in(
        chapter, ((metric.definition, metric.columns) for metric in METRICS.values())
    )
