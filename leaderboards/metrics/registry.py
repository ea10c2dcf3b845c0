"""The registry of metrics: add a metric by declaring it in the file of its family; a new family is
named here."""

from collections.abc import Iterable, Mapping
from itertools import chain

from leaderboards.errors import MetricError
from leaderboards.metrics import answers, costs, directives, leakage, likelihood, outcomes, routing
from leaderboards.metrics.declaration import Definition, Heading, Measure, Metric, definitions_in
from policies.declaration.names import by_name

FAMILIES: tuple[tuple[Metric, ...], ...] = (
    answers.METRICS,
    outcomes.METRICS,
    likelihood.METRICS,
    routing.METRICS,
    directives.METRICS,
    leakage.METRICS,
    costs.METRICS,
)


METRICS: Mapping[str, Metric] = by_name("metrics", chain.from_iterable(FAMILIES), MetricError)


def _measures_by_field(metrics: Iterable[Metric]) -> dict[str, Measure]:
    measures = {}
    for metric in metrics:
        for measure in metric.measures:
            measures[measure.field] = measure
    return measures


def _with_curves() -> tuple[Measure, ...]:
    """Lists the measures that have a curve, family by family; what policies are ranked by comes
    first."""
    curves: list[Measure] = []
    for family in FAMILIES:
        of_family: list[Measure] = []
        for metric in family:
            of_family += [measure for measure in metric.measures if measure.curve]
        curves += sorted(of_family, key=lambda measure: measure.better is None)
    return tuple(curves)


def _on_board() -> tuple[tuple[Measure, Heading], ...]:
    """Lists the measures that have a column on the board; harms come first."""
    harms_first = sorted(MEASURES.values(), key=lambda measure: measure.better == "higher")
    return tuple((measure, measure.board) for measure in harms_first if measure.board is not None)


MEASURES: Mapping[str, Measure] = _measures_by_field(METRICS.values())  # by column of a row
CURVES = _with_curves()
TABLES = tuple(measure for measure in MEASURES.values() if measure.table)
ON_BOARD = _on_board()


def chapter_definitions(chapter: str) -> tuple[Definition, ...]:
    """Returns the definitions of the metrics that stand in a chapter."""
    declared = [(metric.definition, metric.columns) for metric in METRICS.values()]
    return definitions_in(chapter, declared)
