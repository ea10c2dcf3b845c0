"""The figures of a section, which are curves over the levels, and the trade-off of a first page:
what is kept of the full cache's answers, over the bytes that are still held."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from leaderboards.aggregate.leading_measures import QUESTIONS, find_lead, first_shown, leading_first
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
    "Up: what a policy has of the full cache’s right answers, in percent, mean over the tasks. "
    "Where a task has directives, it is directives obeyed; in running text, next tokens. Across: "
    "what an allocator holds of the full cache’s bytes. A policy that masks tokens frees nothing, "
    "so its line is upright; what has one level, as int4, is a dot.",
)

Place = tuple[float, float]  # bytes held, answers kept
Line = Sequence[tuple[Level, Place]]  # of one policy


@dataclass(frozen=True)
class GalleryPlot:
    name: str
    title: str
    unit: str
    plot: Plot
    caution: str = ""  # what its measure must not be read as
    # It stands before the tables: what leads the task, and what is wrong of what is answered.
    leads: bool = False
    kind: str = ""  # of the levels that it is over, where those of a run are of several kinds

    @property
    def identifier(self) -> str:
        """Tells it from the other figures of its section."""
        if self.kind:
            return f"{self.name}-{self.kind}"
        return self.name


def gallery(
    rows: Sequence[SummaryRow], task: str, mode: str, styles: Styles | None = None, place: str = ""
) -> list[GalleryPlot]:
    """Draws the figures of one task, or ``all``, in one mode: of each measure one for each kind of
    level, which have no axis in common. ``rows``: of all tasks. ``styles``: of all policies of a
    site, if the rows are not. ``place``: of the figures on their page, if there are several."""
    styles = styles or line_styles(rows)
    board_rows = [row for row in rows if row.task == task and row.mode == mode]
    leading = (*first_shown(task, board_rows), WRONG_OF_ANSWERED)
    rows_by_kind = _rows_by_kind(board_rows)
    several = len(rows_by_kind) > 1
    pictures = []
    for measure in leading_first(CURVES, task, board_rows):
        unit = measure.unit
        if measure.better:
            unit += f"; {measure.better} is better"
        for kind, of_kind in rows_by_kind.items():
            if not is_told(measure, of_kind):
                continue
            title, plot_place = measure.title, place
            if several:
                title, plot_place = f"{measure.title}, by {kind}", f"{place}/{kind}"
            picture = GalleryPlot(
                measure.name,
                title,
                unit,
                curve_plot(of_kind, task, mode, measure, styles, plot_place),
                caution=CAUTIONS.get(measure, ""),
                leads=measure in leading,
                kind=kind if several else "",
            )
            pictures.append(picture)
    return pictures


def _rows_by_kind(rows: Sequence[SummaryRow]) -> dict[str, list[SummaryRow]]:
    """Selects for each kind of level the rows that stand over it: those at a level of this kind,
    and those of what has one level, as the full cache and int4."""
    kinds_by_policy: dict[str, set[str]] = {}
    for row in rows:
        kinds_of_policy = kinds_by_policy.setdefault(row.policy, set())
        if row.at != UNTREATED:
            kinds_of_policy.add(row.at.kind)
    rows_by_kind: dict[str, list[SummaryRow]] = {}
    for kind in kinds_apart(row.at for row in rows):
        rows_by_kind[kind] = []
        for row in rows:
            kinds_of_policy = kinds_by_policy[row.policy]
            is_policy_shown = kind in kinds_of_policy or not kinds_of_policy
            if is_policy_shown and row.at.kind in (kind, UNTREATED.kind):
                rows_by_kind[kind].append(row)
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
    full: SummaryRow | None = None
    rows_by_style: dict[LineStyle, list[SummaryRow]] = {}
    levels_shown: set[Level] = set()
    for row in rows:
        if row.task != task or row.mode != mode:
            continue
        rows_by_style.setdefault(styles[row.policy], []).append(row)
        levels_shown.add(row.at)
        if row.policy == FULL and full is None:
            full = row
    horizontal = Axis.over(sorted(levels_shown))
    levels = [level for level in sorted(levels_shown) if level.declared == horizontal.kind]
    marks: list[Mark] = []
    spots: list[Spot] = []
    ends: list[float] = []
    for style, of_policy in rows_by_style.items():
        runs = _points(of_policy, full, measure, horizontal)
        for run in runs:
            marks += _marks(style, run)
            ends += _ends(run)
        spots += _spots(style, of_policy, measure, levels)
    # Fitted to the lines and bands, with 0 kept: on one from 0 to 100 a rate of a few percent lies
    # flat.
    up = f"{measure.title}, {measure.unit}"
    vertical = Axis.from_values(up, ends, top=measure.top or 1.0)
    where = "the mean over tasks" if task == ALL_TASKS else task
    over = f"{measure.title} ({measure.unit}) over the {horizontal.title}"
    drawing = Drawing(
        Frame(horizontal, vertical),
        tuple(marks),
        title=f"{over}, {where}, {mode}: a line for each policy",
        salt=f"{task}/{mode}/{measure.name}/{place}",
    )
    heading = f"{up}: {where.removeprefix('the ')}, {mode}"
    names = {style.index: style.policy for style in rows_by_style}
    return Plot(drawing, heading, tuple(spots), names)


def _points(
    rows: Sequence[SummaryRow], full: SummaryRow | None, measure: Measure, horizontal: Axis
) -> list[list[Point]]:
    """Returns runs of (level, value, interval) without a gap, in the unit shown."""
    if all(row.at == UNTREATED for row in rows):
        # The full cache has one cell, and is what every level is compared with; what has one level
        # is so at each.
        value = _scale(measure, rows[0])
        if value is None:
            return []
        return [[(end, value, None) for end in horizontal.ends]]
    origin = None if full is None else horizontal.origin
    cells: list[tuple[float, SummaryRow]] = []
    if full is not None and origin is not None:
        cells.append((origin, full))
    for row in sorted(rows, key=lambda row: row.at.amount):
        if row.at.declared == horizontal.kind and row.at.value != origin:
            cells.append((row.at.value, row))
    runs: list[list[Point]] = [[]]
    for place, row in cells:
        value = _scale(measure, row)
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place, value, _scaled_interval(measure, row)))
    shown = []
    for run in runs:
        # The origin is no measurement of the policy: it is drawn only where it leads to one.
        is_origin_alone = origin is not None and len(run) == 1 and run[0][0] == origin
        if run and not is_origin_alone:
            shown.append(run)
    return shown


def _scaled_interval(measure: Measure, row: SummaryRow) -> Interval | None:
    interval = measure.interval(row)
    if interval is None:
        return None
    low, high = interval
    return low * measure.factor, high * measure.factor


def _ends(run: Sequence[Point]) -> list[float]:
    ends: list[float] = []
    for _, value, interval in run:
        ends += (value, *(interval or ()))
    return ends


def _scale(measure: Measure, row: SummaryRow) -> float | None:
    value = measure.value(row)
    if value is None:
        return None
    return value * measure.factor


def _marks(style: LineStyle, run: Sequence[Point]) -> Iterator[Mark]:
    """Yields a line, and the band around it of what is no control."""
    points: list[tuple[float, float]] = []
    places, lows, highs = [], [], []
    for ratio, value, interval in run:
        points.append((ratio, value))
        if interval is not None:
            places.append(ratio)
            lows.append(interval[0])
            highs.append(interval[1])
    yield PolicyLine(style, tuple(points))
    # One place has no width to fill.
    if not style.control and len(places) > 1:
        yield Band.between(style, places, lows, highs)


def _spots(
    style: LineStyle, rows: Sequence[SummaryRow], measure: Measure, levels: Sequence[Level]
) -> Iterator[Spot]:
    """Yields the spots of one policy, whose ``rows`` these are. The full cache has one at each
    level, as has what has one level."""
    cells = [(row.at, row) for row in rows]
    if all(row.at == UNTREATED for row in rows):
        cells = [(level, rows[0]) for level in levels]
    for level, row in cells:
        value = _scale(measure, row)
        if level in levels and value is not None:
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
    lines: dict[LineStyle, Line] = {}
    for policy in dict.fromkeys(row.policy for row in rows):
        line = _line(cells, tasks, policy)
        if line and policy != FULL:
            lines[styles[policy]] = line
    if not lines:
        return Blank("nothing is compressed, or the full cache was not run")
    kept_words = what_is_kept(rows, tasks)
    marks, spots, heights = [], [], []
    for style, line in lines.items():
        marks.append(_mark(style, line))
        for level, (held, kept) in line:
            name = "one level" if level == UNTREATED else f"{level}"
            texts = (f"{kept_words} {kept:.0f} %", f"{HELD} {held:.0f} %")
            spots.append(Spot(style.index, held, kept, name, texts))
            heights.append(kept)
    of_full = "percent of the full cache"
    horizontal = Axis.up_to(f"{HELD}, {of_full}", WHOLE)
    vertical = Axis.up_to(f"{kept_words}, {of_full}'s", WHOLE, highest=max(heights))
    frame = Frame(horizontal, vertical, corner="↖ better")
    heading = f"{kept_words.capitalize()} over bytes held, {of_full}"
    title = f"{heading}: a line for each policy"
    drawing = Drawing(frame, tuple(marks), title, f"tradeoff/{place}")
    names = {style.index: style.policy for style in lines}
    return Plot(drawing, heading, tuple(spots), names)


def _mark(style: LineStyle, line: Line) -> Mark:
    places = tuple(point for _, point in line)
    last_level, _ = line[-1]
    if last_level == UNTREATED:
        return Dots(style, places)
    return PolicyLine(style, ((WHOLE, WHOLE), *places))


def what_is_kept(rows: Sequence[SummaryRow], tasks: Sequence[str]) -> str:
    """Names what is kept of the full cache: next tokens where all tasks are running text, else
    answers."""
    words = {find_lead(row).kept for row in rows if row.policy == FULL and row.task in tasks}
    if len(words) == 1:
        return words.pop()
    return KEPT


def _line(
    cells: Mapping[tuple[str, str, Level], SummaryRow], tasks: Sequence[str], policy: str
) -> Line:
    levels = set()
    for task, name, level in cells:
        if name == policy and task != ALL_TASKS:
            levels.add(level)
    treated = levels - {UNTREATED}
    line = []
    for level in sorted(treated or levels, key=lambda level: level.amount):
        point = held_and_kept(cells, tasks, policy, level)
        if point is not None:
            line.append((level, point))
    return line


def held_and_kept(
    cells: Mapping[tuple[str, str, Level], SummaryRow],
    tasks: Sequence[str],
    policy: str,
    level: Level,
) -> Place | None:
    """Averages bytes held and answers kept over tasks, in percent of the full cache's; None where
    one has no value."""
    held, kept = [], []
    for task in tasks:
        row = cells.get((task, policy, level))
        full = cells.get((task, FULL, UNTREATED))
        if row is None or full is None:
            return None
        bytes_held = _share(KV_BYTES, row, full)
        answers_kept = _share(find_lead(full).measures[0], row, full)
        if bytes_held is None or answers_kept is None:
            return None
        held.append(bytes_held)
        kept.append(answers_kept)
    if not tasks:
        return None
    return fmean(held), fmean(kept)


def _share(measure: Measure, row: SummaryRow, full: SummaryRow) -> float | None:
    """Returns what a row has of the full cache's value, in percent."""
    value, whole = measure.value(row), measure.value(full)
    if value is None or not whole:
        return None
    return WHOLE * value / whole
