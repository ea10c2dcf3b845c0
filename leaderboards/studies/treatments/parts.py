"""Curves, maps and texts from which the pages on treatments are made."""

from collections.abc import Callable, Mapping

from markupsafe import Markup

from leaderboards.figures.panels import BandedLine, panel
from leaderboards.rendering.frames import SHARE, Axis
from leaderboards.rendering.style import LineStyle
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture
from leaderboards.studies.treatments.measured import MeasuredTask
from policies.declaration.levels import Level

KEPT = "share kept"
TOP = (*SHARE, 1.2)


def curves(
    task: MeasuredTask,
    lines: Mapping[str, LineStyle],
    kind: str,
    title: str,
    salt: str,
    note: str = KEPT,
    over: tuple[str, Callable[[str, float], float]] | None = None,
) -> Picture:
    """Draws what policies keep over levels of a kind, from the untreated cache on. ``over``: instead of the levels, the
    name of what the axis is of, and where a level of a policy is on it."""
    place = over[1] if over else lambda policy, level: level
    paths = [_path(task, policy, style, place) for policy, style in lines.items()]
    levels = [Level(kind, place(policy, level)) for policy in lines for level in task.levels(policy)]
    highest = max((max((*path.high, *(y for _, y in path.places))) for path in paths), default=1.0)
    ticks = SHARE if highest <= 1.05 else TOP
    axis = Axis.from_values(over[0], [level.value for level in levels]) if over else Axis.over(levels)
    drawing = panel(paths, axis, Axis.around("", ticks), f"{title}: {note} over the {axis.title}", salt)
    return Picture(title, note, Markup(drawing))


def _path(task: MeasuredTask, policy: str, style: LineStyle, place: Callable[[str, float], float]) -> BandedLine:
    levels = [level for level in task.levels(policy) if level]
    estimates = [task.estimate(task.share_kept(policy, level)) for level in levels]
    estimates = [Estimate(1.0, 1.0, 1.0, task.evidence.contexts), *estimates]
    has_band = all(one.low is not None for one in estimates)
    return BandedLine(
        style,
        tuple((place(policy, level), one.mean) for level, one in zip([0.0, *levels], estimates, strict=True)),
        tuple(float(one.low or 0) for one in estimates) if has_band else (),
        tuple(float(one.high or 0) for one in estimates) if has_band else (),
    )


def in_percent(estimate: Estimate) -> str:
    """Writes a share with its interval, in percent.

    >>> in_percent(Estimate(0.5, 0.25, 0.75, 4))
    '50 [25 to 75]'
    """
    interval = (
        "" if estimate.interval is None else " [{:z.0f} to {:z.0f}]".format(*(100 * x for x in estimate.interval))
    )
    return f"{100 * estimate.mean:z.0f}{interval}"


def in_points(estimate: Estimate) -> str:
    """Writes a difference of shares with its interval, in points.

    >>> in_points(Estimate(-0.25, -0.5, 0.125, 4))
    '-25 [-50 to +12]'
    """
    interval = (
        "" if estimate.interval is None else " [{:+z.0f} to {:+z.0f}]".format(*(100 * x for x in estimate.interval))
    )
    return f"{100 * estimate.mean:+z.0f}{interval}"


def is_clear(estimate: Estimate) -> bool:
    """Tells whether the interval of a difference leaves out 0."""
    return estimate.interval is not None and not estimate.interval[0] <= 0 <= estimate.interval[1]


def half_lost_from(task: MeasuredTask, policy: str) -> float | None:
    """Returns the lowest level from which on no more than half is kept, or None where there is none."""
    losing = None
    for level in reversed(task.levels(policy)):
        if task.share_kept(policy, level)[0] > 0.5:
            break
        losing = level
    return losing
