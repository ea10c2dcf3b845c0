"""The figures of a section: curves, the scatter of GER against hallucination, and heat maps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from leaderboards.aggregate.facets import Facet
from leaderboards.aggregate.lead import first_shown, leading_first
from leaderboards.aggregate.row import ALL_TASKS, GER, HALLUCINATION, WRONG_OF_ANSWERED, SummaryRow, is_told
from leaderboards.boards.cliff import CLIFFS, Cliff
from leaderboards.boards.correlation import CORRELATIONS, Correlation, correlation
from leaderboards.boards.standings import Standing, Standings
from leaderboards.figures.curves import curve_plot
from leaderboards.figures.heatmaps import HeatMap, layer_map, question_map, task_map
from leaderboards.metrics import CURVES, Measure, Over
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Frame
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.marks import Dots
from leaderboards.rendering.plots import Plot, Spot, numbers
from leaderboards.rendering.style import LineStyle, line_styles
from leaderboards.statistics.bootstrap import Blank
from policies.declaration.levels import UNTREATED
from policies.declaration.names import CONTROLS, FULL

# Draws the Global Eviction Ratio against rates of wrong answers: are answers made up where the evidence is evicted
# everywhere?

Pair = tuple[Measure, Measure]  # across and up

# The axes end where points do, rounded up to a fifth of the highest possible value; and then have this many steps.
STEPS = {1: 4, 2: 4, 3: 3, 4: 4, 5: 5}
NO_POINTS = "no policy has both"


@dataclass(frozen=True)
class Scatter:
    """A point for each policy and level."""

    plot: Plot
    correlation: Correlation | Blank  # of the methods; controls do not count, as the oracle is made to lose nothing


def scatter(
    rows: Sequence[SummaryRow],
    task: str,
    mode: str,
    measure: Measure,
    styles: Mapping[str, LineStyle] | None = None,
    place: str = "",
) -> Scatter | Blank:
    """Draws a measure of one task, or ``all``, in one mode over GER, by what the rows measured. Blank where nothing has
    both values."""
    both = (GER, measure)
    styles = styles or line_styles(rows)
    shown = [row for row in rows if (row.task, row.mode) == (task, mode)]
    known = [row for row in shown if all(one.value(row) is not None for one in both)]
    if not known:
        reasons = [row.reason for row in shown if row.reason]
        return Blank(reasons[0] if reasons else NO_POINTS)
    points: dict[LineStyle, list[SummaryRow]] = {}
    for row in known:
        points.setdefault(styles[row.policy], []).append(row)

    marks = tuple(
        Dots(style, tuple(_place(row, both) for row in rows_of_style)) for style, rows_of_style in points.items()
    )
    where = "the mean over tasks" if task == ALL_TASKS else task
    kind = min({row.at for row in known} - {UNTREATED}, default=UNTREATED).declared
    across, up = (_axis(one, [_place(row, both)[number] for row in known]) for number, one in enumerate(both))
    title = f"{measure.title} over {GER.title}, {where}, {mode}: a point for each policy and {kind.name}"
    plot = Plot(
        Drawing(Frame(across, up), marks, title, f"{task}/{mode}/scatter/{measure.name}/{place}"),
        f"{measure.title}, percent, over GER: {where.removeprefix('the ')}, {mode}",
        tuple(_spot(style, row, both) for style, rows_of_style in points.items() for row in rows_of_style),
        {style.index: style.policy for style in points},
        _left_out(shown, known),
    )
    return Scatter(plot, over_levels([row for row in known if row.policy not in CONTROLS], both))


def over_levels(rows: Sequence[SummaryRow], both: Pair) -> Correlation | Blank:
    """Correlates both measures, each row a point."""
    return correlation(*(np.array([one.value(row) for row in rows], dtype=np.float64) for one in both))


def correlation_text(correlation: Correlation | Blank) -> str:
    """Writes the correlation in a line.

    >>> correlation_text(Correlation(0.5, 0.0004, -0.25, 0.04, 12))
    'r = 0.50 (p < 0.001), ρ = −0.25 (p = 0.040), 12 points'
    """
    if isinstance(correlation, Blank):
        return f"no correlation: {correlation.reason}"
    pearson, spearman = (
        f"{coefficient:z.2f} ({p_equation(p)})".replace("-", "−")
        for coefficient, p in (
            (correlation.pearson, correlation.pearson_p),
            (correlation.spearman, correlation.spearman_p),
        )
    )
    return f"r = {pearson}, ρ = {spearman}, {correlation.n} points"


def p_equation(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _place(row: SummaryRow, both: Pair) -> tuple[float, float]:
    """Returns the place of a row that has both measures, in the units shown."""
    across, up = ((one.value(row) or 0.0) * one.factor for one in both)
    return across, up


def _axis(measure: Measure, values: Sequence[float]) -> Axis:
    top = measure.top or 1.0  # both have one
    fifths = max(1, math.ceil(5 * max(values) / top - 1e-9))
    return Axis.up_to(f"{measure.title}, {measure.unit}", top * fifths / 5, STEPS[fifths])


def _spot(style: LineStyle, row: SummaryRow, both: Pair) -> Spot:
    lines = [f"{one.title} {', '.join(numbers(one, row))}" for one in both]
    return Spot(style.index, *_place(row, both), f"{row.at}", (*lines, f"{row.n:,} questions"))


def _left_out(shown: Sequence[SummaryRow], known: Sequence[SummaryRow]) -> str:
    """Says which policies lack points at which levels, and why, each reason once: the tasks in which it holds stand
    where the cells are blank."""
    missing: dict[str, dict[str, list[str]]] = {}
    there = {(row.policy, row.at) for row in known}
    for row in shown:
        if (row.policy, row.at) not in there and row.policy != FULL:
            reason = (row.reason or "not measured").rpartition(": ")[2]
            missing.setdefault(reason, {}).setdefault(row.policy, []).append(str(row.at))
    told_of = {
        reason: [f"{policy} at {', '.join(levels)}" for policy, levels in policies.items()]
        for reason, policies in missing.items()
    }
    return "; ".join(f"{', '.join(policies)} ({reason})" for reason, policies in told_of.items())


@dataclass(frozen=True)
class Details:
    """Holds what the records say beyond the rows."""

    standings: Standings = field(default_factory=dict)
    facets: Sequence[Facet] = ()


@dataclass(frozen=True)
class GalleryPlot:
    """A plot under a title."""

    name: str
    title: str
    unit: str
    plot: Plot
    note: str = ""  # what has to be known to read it
    caution: str = ""  # the part of the note that says what its measure must not be read as
    leads: bool = False  # it stands before the tables: what leads the task, and what is wrong of what is answered


@dataclass(frozen=True)
class Gallery:
    """The figures of one task in one mode."""

    pictures: tuple[GalleryPlot, ...]
    blanks: tuple[tuple[str, str], ...]  # name and reason of what is not drawn, as it has no value anywhere
    correlations: Listing
    maps: tuple[HeatMap, ...]


# Every task has these, but those without gold answers.
EXPECTED = tuple(measure for measure in CURVES if measure.over is not Over.CONCERNED)
RAW_RATES = (
    "The hallucination rate counts wrong answers among all questions, so it also falls when a model falls silent; "
    "wrong of answered counts them among the answers that are given."
)
STILL_ANSWERED = (
    "Wrong of answered looks only at what is still answered, so it also falls where only easy questions are answered. "
    "“Lost” and the abstention rate tell how many are not answered any more."
)
CAUTIONS = {WRONG_OF_ANSWERED: STILL_ANSWERED, HALLUCINATION: RAW_RATES}
COLUMNS = ("policy", "of", "Pearson’s r", "p", "Spearman’s ρ", "p", "levels")


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
    board_rows = [row for row in rows if (row.task, row.mode) == (task, mode)]
    standings = details.standings.get((mode, task), ())
    leading = (*first_shown(task, board_rows), WRONG_OF_ANSWERED)
    pictures = [
        replace(
            _curve(curve_plot(rows, task, mode, measure, _cliffs(standings, measure), styles, place), measure),
            leads=measure in leading,
        )
        for measure in leading_first(CURVES, task, board_rows)
        if is_told(measure, board_rows)
    ]
    scatters = [
        _scatter(scatter(rows, task, mode, measure, styles, place), measure)
        for measure in CORRELATIONS
        if is_told(GER, board_rows)
    ]
    drawn = [picture for picture in scatters if picture is not None]
    pictures += drawn
    maps = (
        task_map(rows, mode) if task == ALL_TASKS else Blank("of a single task"),
        question_map(details.facets, rows, task, mode),
        layer_map(rows, task, mode),
    )
    return Gallery(
        tuple(pictures),
        _blanks(board_rows),
        _correlations(standings if drawn else ()),
        tuple(one for one in maps if not isinstance(one, Blank)),
    )


def _correlations(standings: Sequence[Standing]) -> Listing:
    rows = (
        _correlation_row(standing.policy, measure.title, standing[correlated])
        for measure, correlated in CORRELATIONS.items()
        for standing in standings
    )
    return Listing("GER with hallucination over the levels of each policy", COLUMNS, tuple(rows))


def _curve(plot: Plot, measure: Measure) -> GalleryPlot:
    better = f"; {measure.better} is better" if measure.better else ""
    note = " ".join(filter(None, (CAUTIONS.get(measure, ""), plot.note)))
    return GalleryPlot(measure.name, measure.title, f"{measure.unit}{better}", plot, note, CAUTIONS.get(measure, ""))


def _cliffs(standings: Sequence[Standing], measure: Measure) -> Mapping[str, Cliff | Blank]:
    """Returns where a rate rises fastest, by policy, of the rates that this is told of."""
    return {one.policy: one[CLIFFS[measure]] for one in standings} if measure in CLIFFS else {}


def _scatter(points: Scatter | Blank, measure: Measure) -> GalleryPlot | None:
    if isinstance(points, Blank):
        return None
    title = f"GER against {measure.title.lower()}"
    unit = f"{measure.title.lower()} over GER, a point for each policy and level"
    return GalleryPlot(f"ger-{measure.name}", title, unit, points.plot, _note(points))


def _note(points: Scatter) -> str:
    plot = points.plot
    note = f"Over the methods: {correlation_text(points.correlation)}"
    if isinstance(points.correlation, Correlation):
        note += ". The points are about the same questions, so p is too small"
    return f"{note}. Hollow marks are controls, which are not counted." + (
        f" Not drawn: {plot.note}." if plot.note else ""
    )


def _correlation_row(policy: str, rate: str, correlation: Correlation | Blank) -> tuple[str, ...]:
    if isinstance(correlation, Blank):
        return (policy, rate, "–", "", "–", "", correlation.reason)
    pearson, spearman = f"{correlation.pearson:z.2f}", f"{correlation.spearman:z.2f}"
    return (
        policy,
        rate,
        pearson,
        p_equation(correlation.pearson_p),
        spearman,
        p_equation(correlation.spearman_p),
        str(correlation.n),
    )


def _blanks(rows: Sequence[SummaryRow]) -> tuple[tuple[str, str], ...]:
    """Lists the measures without a curve, and why. It leaves out directives and leaks, which few tasks ask for."""
    missing = [measure for measure in EXPECTED if not is_told(measure, rows)]
    reasons = [row.reason for row in rows if row.reason]
    return tuple((measure.title, _reason(measure, rows, reasons)) for measure in missing)


def _reason(measure: Measure, rows: Sequence[SummaryRow], reasons: Sequence[str]) -> str:
    if any(measure.value(row) is not None for row in rows):
        return "no tokens are removed"
    return reasons[0] if reasons else "not measured"
