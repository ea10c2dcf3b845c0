"""The figures of a section, which are curves over the levels, and the trade-off of a first page:
what is kept of the full cache's answers, over the bytes that are still held."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from leaderboards.aggregate.lead import QUESTIONS, first_shown, lead_of, leading_first
from leaderboards.aggregate.row import (
    ALL_TASKS,
    HALLUCINATION,
    KV_BYTES,
    WRONG_OF_ANSWERED,
    SummaryRow,
    is_told,
)
from leaderboards.metrics import CURVES, Interval, Measure
from leaderboards.metrics.declaration import Definition
from leaderboards.rendering.drawing import Drawing, Plot, Spot, numbers
from leaderboards.rendering.frames import Axis, Band, Dots, Frame, Mark, PolicyLine
from leaderboards.rendering.style import LineStyle, line_styles
from leaderboards.statistics.bootstrap import Blank
from policies.declaration.levels import UNTREATED, Level, kinds_apart
from policies.declaration.names import FULL

Styles = Mapping[str, LineStyle]
Point = tuple[float, float, Interval | None]

RAW_RATES = (
    "The hallucination rate counts wrong answers among all questions, so it also falls when a "
    "model falls silent; wrong of answered counts them among the answers that are given."
)
STILL_ANSWERED = (
    "Wrong of answered looks only at what is still answered, so it also falls where only easy "
    "questions are answered. “Lost” and the abstention rate tell how many are not answered any "
    "more."
)
CAUTIONS = {WRONG_OF_ANSWERED: STILL_ANSWERED, HALLUCINATION: RAW_RATES}


WHOLE = 100.0  # percent
KEPT, HELD = QUESTIONS.kept, "bytes held"
TRADEOFF = Definition(
    "Answers kept, and bytes held",
    "What a policy has of the full cache’s right answers, of its directives obeyed where a task "
    "has directives, or of its next tokens in running text, in percent, mean over the tasks; and "
    "what an allocator holds of the full cache’s bytes. A policy that masks tokens frees nothing, "
    "so its line is upright; what has one level, as int4, is a dot.",
)

Place = tuple[float, float]  # bytes held, answers kept


@dataclass(frozen=True)
class GalleryPlot:
    name: str
    title: str
    unit: str
    plot: Plot
    caution: str = ""  # what its measure must not be read as
    # it stands before the tables: what leads the task, and what is wrong of what is answered
    leads: bool = False
    kind: str = ""  # of the levels that it is over, where those of a run are of several kinds

    @property
    def identifier(self) -> str:
        """Tells it from the other figures of its section."""
        return f"{self.name}-{self.kind}" if self.kind else self.name


def gallery(
    rows: Sequence[SummaryRow], task: str, mode: str, styles: Styles | None = None, place: str = ""
) -> list[GalleryPlot]:
    """Draws the figures of one task, or ``all``, in one mode: of each measure one for each kind of
    level, which have no axis in common. ``rows``: of all tasks. ``styles``: of all policies of a
    site, if the rows are not. ``place``: of the figures on their page, if there are several."""
    styles = styles or line_styles(rows)
    board_rows = [row for row in rows if (row.task, row.mode) == (task, mode)]
    leading = (*first_shown(task, board_rows), WRONG_OF_ANSWERED)
    rows_by_kind = _rows_by_kind(board_rows)
    several = len(rows_by_kind) > 1
    pictures = []
    for measure in leading_first(CURVES, task, board_rows):
        for kind, of_kind in rows_by_kind.items():
            if not is_told(measure, of_kind):
                continue
            named = kind if several else ""
            plot = curve_plot(
                of_kind, task, mode, measure, styles, f"{place}/{kind}" if several else place
            )
            title = f"{measure.title}, by {kind}" if several else measure.title
            unit = f"{measure.unit}; {measure.better} is better" if measure.better else measure.unit
            caution = CAUTIONS.get(measure, "")
            pictures.append(
                GalleryPlot(measure.name, title, unit, plot, caution, measure in leading, named)
            )
    return pictures


def _rows_by_kind(rows: Sequence[SummaryRow]) -> dict[str, list[SummaryRow]]:
    """Selects for each kind of level the rows that stand over it: those at a level of this kind,
    and those of what has one level, as the full cache and int4."""
    has_levels = {row.policy for row in rows if row.at != UNTREATED}
    rows_by_kind = {}
    for kind in kinds_apart(row.at for row in rows):
        policies = {row.policy for row in rows if row.at.kind == kind and row.at != UNTREATED}
        policies |= {row.policy for row in rows if row.policy not in has_levels}
        rows_by_kind[kind] = [
            row for row in rows if row.policy in policies and row.at.kind in (kind, UNTREATED.kind)
        ]
    return rows_by_kind


def curve_plot(
    rows: Sequence[SummaryRow],
    task: str,
    mode: str,
    measure: Measure,
    styles: Styles | None = None,
    place: str = "",
) -> Plot:
    """Draws one line for each policy of ``rows``, from the full cache at ratio 0, with a band for
    each method where there are intervals; a blank cell leaves a gap. What has one level, as int4,
    has it at each level of the others. ``rows``: their levels are of one kind. ``styles``: of all
    policies of a site, if the rows are not. ``place``: different for each drawing of a page."""
    styles = styles or line_styles(rows)
    shown = [row for row in rows if row.task == task and row.mode == mode]
    levels = sorted({row.at for row in shown})
    horizontal = Axis.over(levels)
    full = next((row for row in shown if row.policy == FULL), None)
    rows_by_style: dict[LineStyle, list[SummaryRow]] = {}
    for row in shown:
        rows_by_style.setdefault(styles[row.policy], []).append(row)
    lines = {
        style: _points(of_policy, full, measure, horizontal)
        for style, of_policy in rows_by_style.items()
    }
    points = [point for runs in lines.values() for run in runs for point in run]
    ends = [end for _, value, interval in points for end in (value, *(interval or ()))]
    # Fitted to the lines and bands, with 0 kept: on one from 0 to 100 a rate of a few percent lies
    # flat.
    vertical = Axis.from_values(f"{measure.title}, {measure.unit}", ends, top=measure.top or 1.0)
    where = "the mean over tasks" if task == ALL_TASKS else task
    title = f"{measure.title} ({measure.unit}) over the {horizontal.title}, {where}, {mode}: a line for each policy"
    marks = tuple(mark for style, runs in lines.items() for mark in _marks(style, runs))
    levels = [level for level in levels if level.declared == horizontal.kind]
    return Plot(
        Drawing(Frame(horizontal, vertical), marks, title, f"{task}/{mode}/{measure.name}/{place}"),
        f"{measure.title}, {measure.unit}: {where.removeprefix('the ')}, {mode}",
        tuple(
            spot
            for style, of in rows_by_style.items()
            for spot in _spots(style, of, measure, levels)
        ),
        {style.index: style.policy for style in lines},
    )


def _points(
    rows: Sequence[SummaryRow], full: SummaryRow | None, measure: Measure, horizontal: Axis
) -> list[list[Point]]:
    """Runs of (level, value, interval) without a gap, in the unit shown."""
    if all(row.at == UNTREATED for row in rows):
        # The full cache has one cell, and is what every level is compared with; what has one level
        # is so at each.
        value = _scale(measure, rows[0])
        return [[(end, value, None) for end in horizontal.ends]] if value is not None else []
    origin = None if full is None else horizontal.origin
    anchor = [(origin, full)] if full is not None and origin is not None else []
    runs: list[list[Point]] = [[]]
    of_kind = [row for row in rows if row.at.declared == horizontal.kind and row.at.value != origin]
    for place, row in [
        *anchor,
        *((row.at.value, row) for row in sorted(of_kind, key=lambda row: row.at.amount)),
    ]:
        value = _scale(measure, row)
        if value is None:
            runs.append([])
        else:
            interval = measure.interval(row)
            scaled = (
                None
                if interval is None
                else (interval[0] * measure.factor, interval[1] * measure.factor)
            )
            runs[-1].append((place, value, scaled))
    # The anchor is no measurement of the policy: it is drawn only where it leads to one.
    return [run for run in runs if run and not (anchor and len(run) == 1 and run[0][0] == origin)]


def _scale(measure: Measure, row: SummaryRow) -> float | None:
    value = measure.value(row)
    return None if value is None else value * measure.factor


def _marks(style: LineStyle, runs: Sequence[Sequence[Point]]) -> Iterator[Mark]:
    for run in runs:
        yield PolicyLine(style, tuple((ratio, value) for ratio, value, _ in run))
        intervals = [(ratio, *interval) for ratio, _, interval in run if interval is not None]
        if not style.control and len(intervals) > 1:
            places, low, high = zip(*intervals, strict=True)
            yield Band.between(style, places, low, high)


def _spots(
    style: LineStyle, rows: Sequence[SummaryRow], measure: Measure, levels: Sequence[Level]
) -> Iterator[Spot]:
    """Yields the spots of one policy, whose ``rows`` these are. The full cache has one at each
    level, as has what has one level."""
    has_one = all(row.at == UNTREATED for row in rows)
    cells = [(level, rows[0]) for level in levels] if has_one else [(row.at, row) for row in rows]
    for level, row in cells:
        if level in levels and (value := _scale(measure, row)) is not None:
            lines = (*numbers(measure, row), f"{row.n:,} questions")
            yield Spot(style.index, level.value, value, f"{level}", lines)


def tradeoff(
    rows: Sequence[SummaryRow],
    tasks: Sequence[str],
    styles: Mapping[str, LineStyle],
    place: str = "",
) -> Plot | Blank:
    """Draws a line for each policy, from the full cache on, and a dot for one without levels, as
    int4. ``rows``: of one mode. ``tasks``: that the mean is over. A level at which a task has no
    value is left out."""
    cells = {(row.task, row.policy, row.at): row for row in rows}
    lines = {
        styles[policy]: _line(cells, tasks, policy)
        for policy in dict.fromkeys(row.policy for row in rows)
    }
    lines = {style: line for style, line in lines.items() if line and style.policy != FULL}
    if not lines:
        return Blank("nothing is compressed, or the full cache was not run")
    kept_words = what_is_kept(rows, tasks)
    heading = f"{kept_words.capitalize()} over bytes held, percent of the full cache"
    heights = [kept for line in lines.values() for _, (_, kept) in line]
    frame = Frame(
        Axis.up_to(f"{HELD}, percent of the full cache", WHOLE),
        Axis.from_values(f"{kept_words}, percent of the full cache's", [*heights, WHOLE], steps=6),
        corner="↖ better",
    )
    marks = tuple(_mark(style, line) for style, line in lines.items())
    spots = []
    for style, line in lines.items():
        for level, (held, kept) in line:
            name = "one level" if level == UNTREATED else f"{level}"
            spots.append(
                Spot(
                    style.index,
                    held,
                    kept,
                    name,
                    (f"{kept_words} {kept:.0f} %", f"{HELD} {held:.0f} %"),
                )
            )
    drawing = Drawing(frame, marks, f"{heading}: a line for each policy", f"tradeoff/{place}")
    return Plot(drawing, heading, tuple(spots), {style.index: style.policy for style in lines})


def _mark(style: LineStyle, line: Sequence[tuple[Level, Place]]) -> Mark:
    places = tuple(point for _, point in line)
    return (
        Dots(style, places)
        if line[-1][0] == UNTREATED
        else PolicyLine(style, ((WHOLE, WHOLE), *places))
    )


def what_is_kept(rows: Sequence[SummaryRow], tasks: Sequence[str]) -> str:
    """Names what is kept of the full cache: next tokens where all tasks are running text, else
    answers."""
    words = {lead_of(row).kept for row in rows if row.policy == FULL and row.task in tasks}
    return words.pop() if len(words) == 1 else KEPT


def _line(
    cells: Mapping[tuple[str, str, Level], SummaryRow], tasks: Sequence[str], policy: str
) -> list[tuple[Level, Place]]:
    levels = sorted(
        {level for task, name, level in cells if name == policy and task != ALL_TASKS},
        key=lambda one: one.amount,
    )
    treated = [level for level in levels if level != UNTREATED] or levels
    points = [(level, held_and_kept(cells, tasks, policy, level)) for level in treated]
    return [(level, point) for level, point in points if point is not None]


def held_and_kept(
    cells: Mapping[tuple[str, str, Level], SummaryRow],
    tasks: Sequence[str],
    policy: str,
    level: Level,
) -> Place | None:
    """Averages bytes held and answers kept over tasks, in percent of the full cache's; None where
    one has no value."""
    shares: list[list[float]] = [[], []]
    for task in tasks:
        row, full = cells.get((task, policy, level)), cells.get((task, FULL, UNTREATED))
        if row is None or full is None:
            return None
        for measure, of_tasks in zip((KV_BYTES, lead_of(full).measures[0]), shares, strict=True):
            value, whole = measure.value(row), measure.value(full)
            if value is None or not whole:
                return None
            of_tasks.append(WHOLE * value / whole)
    return (fmean(shares[0]), fmean(shares[1])) if tasks else None
