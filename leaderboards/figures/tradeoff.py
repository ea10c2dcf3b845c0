"""Draws the trade-off: what is kept of the full cache's answers, over the bytes that are still held."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from leaderboards.aggregate.lead import QUESTIONS, lead_of
from leaderboards.aggregate.row import ALL_TASKS, KV_BYTES, SummaryRow
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.rendering.drawing import Drawing, Plot, Spot
from leaderboards.rendering.frames import Axis, Frame
from leaderboards.rendering.marks import Dots, Mark, PolicyLine
from leaderboards.rendering.style import LineStyle
from leaderboards.statistics.bootstrap import Blank
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

WHOLE = 100.0  # percent
KEPT, HELD = QUESTIONS.kept, "bytes held"
DEFINITION = Definition(
    "Answers kept, and bytes held",
    "What a policy has of the full cache’s right answers, of its directives obeyed where a task has directives, or of "
    "its next tokens in running text, in "
    "percent, mean over the tasks; and what an allocator holds of the full cache’s bytes. A policy that masks tokens "
    "frees nothing, so its line is upright; what has one level, as int4, is a dot.",
    names=(KEPT, HELD),
)

Place = tuple[float, float]  # bytes held, answers kept


def tradeoff(
    rows: Sequence[SummaryRow], tasks: Sequence[str], styles: Mapping[str, LineStyle], place: str = ""
) -> Plot | Blank:
    """Draws a line for each policy, from the full cache on, and a dot for one without levels, as int4. ``rows``: of one
    mode. ``tasks``: that the mean is over. A level at which a task has no value is left out."""
    cells = {(row.task, row.policy, row.at): row for row in rows}
    lines = {styles[policy]: _line(cells, tasks, policy) for policy in dict.fromkeys(row.policy for row in rows)}
    lines = {style: line for style, line in lines.items() if line and style.policy != FULL}
    if not lines:
        return Blank("nothing is compressed, or the full cache was not run")
    kept_words = what_is_kept(rows, tasks)
    heights = [kept for line in lines.values() for _, (_, kept) in line]
    frame = Frame(
        Axis.up_to(f"{HELD}, percent of the full cache", WHOLE),
        Axis.from_values(f"{kept_words}, percent of the full cache's", [*heights, WHOLE], steps=6),
        corner="↖ better",
    )
    names = {level: "one level" if level == UNTREATED else f"{level}" for line in lines.values() for level, _ in line}
    return Plot(
        Drawing(
            frame,
            tuple(_mark(style, line) for style, line in lines.items()),
            f"{kept_words.capitalize()} over bytes held, percent of the full cache: a line for each policy",
            f"tradeoff/{place}",
        ),
        f"{kept_words.capitalize()} over bytes held, percent of the full cache",
        tuple(
            Spot(style.index, held, kept, names[level], (f"{kept_words} {kept:.0f} %", f"{HELD} {held:.0f} %"))
            for style, line in lines.items()
            for level, (held, kept) in line
        ),
        {style.index: style.policy for style in lines},
    )


def _mark(style: LineStyle, line: Sequence[tuple[Level, Place]]) -> Mark:
    places = tuple(point for _, point in line)
    return Dots(style, places) if line[-1][0] == UNTREATED else PolicyLine(style, ((WHOLE, WHOLE), *places))


def what_is_kept(rows: Sequence[SummaryRow], tasks: Sequence[str]) -> str:
    """Names what is kept of the full cache: next tokens where all tasks are running text, else answers."""
    words = {lead_of(row).kept for row in rows if row.policy == FULL and row.task in tasks}
    return words.pop() if len(words) == 1 else KEPT


def kept_share(rows: Mapping[tuple[str, str, Level], SummaryRow], task: str, policy: str, level: Level) -> float | None:
    """Returns the answers kept of a task, in percent of the full cache's; None where either has no value."""
    row, full = rows.get((task, policy, level)), rows.get((task, FULL, UNTREATED))
    if row is None or full is None:
        return None
    measure = lead_of(full).measures[0]
    return _share(measure.value(row), measure.value(full))


def _line(
    cells: Mapping[tuple[str, str, Level], SummaryRow], tasks: Sequence[str], policy: str
) -> list[tuple[Level, Place]]:
    levels = sorted(
        {level for task, name, level in cells if name == policy and task != ALL_TASKS}, key=lambda one: one.amount
    )
    treated = [level for level in levels if level != UNTREATED] or levels
    points = [(level, _point(cells, tasks, policy, level)) for level in treated]
    return [(level, point) for level, point in points if point is not None]


def _point(
    cells: Mapping[tuple[str, str, Level], SummaryRow], tasks: Sequence[str], policy: str, level: Level
) -> Place | None:
    held, kept = [], []
    for task in tasks:
        row, full = cells.get((task, policy, level)), cells.get((task, FULL, UNTREATED))
        if row is None or full is None:
            return None
        share = _share(KV_BYTES.value(row), KV_BYTES.value(full)), kept_share(cells, task, policy, level)
        if share[0] is None or share[1] is None:
            return None
        held.append(share[0])
        kept.append(share[1])
    return (fmean(held), fmean(kept)) if held else None


def _share(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else WHOLE * value / whole
