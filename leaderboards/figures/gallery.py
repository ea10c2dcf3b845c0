"""The figures of a section: curves, the scatter of GER against hallucination, and heat maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from leaderboards.aggregate.facets import Facet
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.boards.cliff import CLIFF
from leaderboards.boards.correlation import CORRELATION, Correlation
from leaderboards.boards.standings import Standings
from leaderboards.figures.curves import curve_plot
from leaderboards.figures.heatmaps import HeatMap, layer_map, question_map, task_map
from leaderboards.figures.scatter import Scatter, scatter, told, written_p
from leaderboards.metrics import CURVES, Measure, Over
from leaderboards.rendering.plots import Plot
from leaderboards.rendering.style import LineStyle
from leaderboards.statistics.resampling import Blank


@dataclass(frozen=True)
class Details:
    """Holds what the records say beyond the rows."""

    standings: Standings = field(default_factory=dict)
    facets: Sequence[Facet] = ()


@dataclass(frozen=True)
class Picture:
    """A plot under a title."""

    name: str
    title: str
    unit: str
    plot: Plot
    note: str = ""  # what has to be known to read it


@dataclass(frozen=True)
class Gallery:
    """The figures of one task in one mode."""

    pictures: tuple[Picture, ...]
    blanks: tuple[tuple[str, str], ...]  # name and reason of what is not drawn, as it has no value anywhere
    columns: tuple[str, ...]  # of the correlations
    correlations: tuple[tuple[str, ...], ...]  # a row for each policy
    maps: tuple[HeatMap, ...]


# Every task has these, but those without gold answers.
EXPECTED = tuple(measure for measure in CURVES if measure.over is not Over.CONCERNED)
SCATTER, SCATTER_TITLE = "ger-hallucination", "GER against hallucination"
SCATTER_UNIT = "hallucination rate over GER, a point for each policy and level"
CORRELATIONS = ("policy", "Pearson’s r", "p", "Spearman’s ρ", "p", "levels")


def gallery(
    rows: Sequence[SummaryRow],
    task: str,
    mode: str,
    details: Details,
    styles: Mapping[str, LineStyle] | None = None,
    place: str = "",
) -> Gallery:
    """Draws one task, or ``all``, in one mode. ``rows``: of all tasks. ``styles``: of all policies of a site, if the
    rows are not. ``place``: of the gallery on its page, if there are several."""
    own = [row for row in rows if (row.task, row.mode) == (task, mode)]
    found = details.standings.get((mode, task), ())
    cliffs = {standing.policy: standing[CLIFF] for standing in found}
    pictures = [
        _curve(curve_plot(rows, task, mode, measure, cliffs, styles, place), measure)
        for measure in CURVES
        if _any(own, measure)
    ]
    points = scatter(rows, task, mode, styles, place)
    if not isinstance(points, Blank):
        pictures.append(Picture(SCATTER, SCATTER_TITLE, SCATTER_UNIT, points.plot, _said(points)))
    maps = (
        task_map(rows, mode) if task == ALL_TASKS else Blank("of a single task"),
        question_map(details.facets, rows, task, mode),
        layer_map(rows, task, mode),
    )
    return Gallery(
        tuple(pictures),
        _blanks(own),
        CORRELATIONS,
        tuple(_correlated(standing.policy, standing[CORRELATION]) for standing in found)
        if not isinstance(points, Blank)
        else (),
        tuple(one for one in maps if not isinstance(one, Blank)),
    )


def _any(rows: Sequence[SummaryRow], measure: Measure) -> bool:
    return any(measure.value(row) is not None for row in rows)


def _curve(plot: Plot, measure: Measure) -> Picture:
    better = f"; {measure.better} is better" if measure.better else ""
    return Picture(measure.name, measure.title, f"{measure.unit}{better}", plot, plot.note)


def _said(points: Scatter) -> str:
    plot = points.plot
    note = f"Over the methods: {told(points.correlation)}"
    if isinstance(points.correlation, Correlation):
        note += ", which are about the same questions, so that p is too small"
    return f"{note}. Hollow marks are controls, which are not counted." + (
        f" Not drawn: {plot.note}." if plot.note else ""
    )


def _correlated(policy: str, found: Correlation | Blank) -> tuple[str, ...]:
    if isinstance(found, Blank):
        return (policy, "–", "", "–", "", found.reason)
    pearson, spearman = f"{found.pearson:.2f}", f"{found.spearman:.2f}"
    return (policy, pearson, written_p(found.pearson_p), spearman, written_p(found.spearman_p), str(found.n))


def _blanks(rows: Sequence[SummaryRow]) -> tuple[tuple[str, str], ...]:
    """Directives and leaks are asked for in few tasks: that others have none needs no reason."""
    missing = [measure for measure in EXPECTED if not _any(rows, measure)]
    reasons = list(dict.fromkeys(row.reason for row in rows if row.reason))
    return tuple((measure.title, reasons[0] if reasons else "not measured") for measure in missing)
