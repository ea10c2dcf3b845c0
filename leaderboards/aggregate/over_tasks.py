"""The mean over tasks of each policy and level, whose interval follows from the resamples of the tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leaderboards.aggregate.row import ALL_TASKS, DELTA_NLL, SummaryRow
from leaderboards.metrics import MEASURES, Over
from leaderboards.statistics.bootstrap import ENOUGH, FloatArray, percentile_intervals
from policies.declaration.levels import Level

NONE_MASTERED = "the model can do none of the tasks with the full cache"
Key = tuple[str, str, str, Level]


@dataclass(frozen=True)
class SummaryCell:
    """A row, and the resampled means of the measures that have an interval, each of shape (resamples,)."""

    row: SummaryRow
    means: Mapping[str, FloatArray]


def over_tasks(cells: Mapping[Key, SummaryCell], every_task: bool) -> dict[Key, SummaryCell]:
    """Computes the unweighted mean over tasks of each (mode, policy, level) that is complete in every task that
    counts. Where the model can do no task, the likelihood of the right answer alone has a mean, over all of them."""
    tasks = dict.fromkeys(task for task, *_ in cells)
    excluded = {key[:2] for key, cell in cells.items() if cell.row.not_mastered and not every_task}
    counted = {mode: [task for task in tasks if (task, mode) not in excluded] for _, mode, *_ in cells}
    floors = {
        mode: _floors([cells[key] for key in cells if key[0] in counted[mode] and key[1] == mode]) for mode in counted
    }
    anywhere = dict.fromkeys((ALL_TASKS, mode, policy, level) for _, mode, policy, level in cells)
    means = {}
    for key in in_order(list(anywhere)):
        mastered = counted[key[1]]
        by_task = [(task, cells.get((task, *key[1:]))) for task in mastered or tasks]
        means[key] = _mean_over_tasks(key, by_task, floors[key[1]], none_mastered=not mastered)
    return means


def _floors(cells: Sequence[SummaryCell]) -> dict[str, float | None]:
    """Returns the mean over tasks of what chance and silence reach in each that has such a number."""
    floors: dict[str, float | None] = {}
    for name in ("chance", "right_by_silence"):
        by_task = {cell.row.task: getattr(cell.row, name) for cell in cells}
        floors[name] = _average([number for number in by_task.values() if number is not None])
    return floors


def _mean_over_tasks(
    key: Key,
    by_task: Sequence[tuple[str, SummaryCell | None]],
    floors: Mapping[str, float | None],
    none_mastered: bool,
) -> SummaryCell:
    _, mode, policy, level = key
    present = [cell for _, cell in by_task if cell is not None]
    gaps = [f"{task}: not run" for task, cell in by_task if cell is None]
    gaps += [f"{cell.row.task}: {cell.row.reason}" for cell in present if cell.row.reason]
    shared: dict[str, Any] = {
        "task": ALL_TASKS,
        "mode": mode,
        "policy": policy,
        "level_kind": level.kind,
        "level": level.value,
        "ratio": mean_ratio(level, [cell.row.ratio for cell in present]),
        "repeats": max((cell.row.repeats for cell in present), default=1),
        "n": sum(cell.row.n for cell in present),
        "contexts": sum(cell.row.contexts for cell in present),
        "fewest_contexts": min((cell.row.fewest_contexts for cell in present), default=0),
        "mean_of": () if none_mastered else tuple(task for task, _ in by_task),
        "not_mastered": NONE_MASTERED if none_mastered else None,
        **floors,
        "reason": NONE_MASTERED if none_mastered else join_reasons(gaps),
    }
    if not present or len(present) < len(by_task) or not all(cell.row.complete for cell in present):
        return SummaryCell(SummaryRow(**shared, complete=False), {})
    measures: dict[str, Any] = {}
    means = {}
    for name, measure in {DELTA_NLL.field: DELTA_NLL}.items() if none_mastered else MEASURES.items():
        # A task without directives is no reason to say nothing of the others.
        counted = [c for c in present if measure.over is not Over.CONCERNED or getattr(c.row, name) is not None]
        values = [getattr(cell.row, name) for cell in counted]
        measures[name] = _average_by_layer(values) if measure.by_layer else _average(values)
        if counted and all(name in cell.means for cell in counted):
            means[name] = np.mean([cell.means[name] for cell in counted], axis=0)
    given = [cell.row.answers_given for cell in present if cell.row.answers_given is not None]
    return SummaryCell(
        SummaryRow(
            **shared,
            **measures,
            **intervals_of(means),
            answers_given=None if none_mastered else min(given, default=None),
            complete=not none_mastered,
        ),
        means,
    )


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _average_by_layer(layers: Sequence[tuple[float, ...] | None]) -> tuple[float, ...] | None:
    known = [layer for layer in layers if layer is not None]
    if not known or len(known) < len(layers) or len({len(layer) for layer in known}) > 1:
        return None
    return tuple(float(mean) for mean in np.mean(np.asarray(known), axis=0))


def in_order(keys: Sequence[Key]) -> list[Key]:
    """Sorts keys: tasks, modes and policies as they first appear, levels ascending."""
    tasks, modes, policies = (list(dict.fromkeys(key[part] for key in keys)) for part in range(3))
    return sorted(keys, key=lambda key: (tasks.index(key[0]), modes.index(key[1]), policies.index(key[2]), key[3]))


def mean_ratio(level: Level, ratios: Sequence[float | None]) -> float | None:
    """Returns the share to remove, or the mean of what the level comes to in each context."""
    fixed = level.fixed_share
    return _average(ratios) if fixed is None else fixed


def intervals_of(means: Mapping[str, FloatArray]) -> dict[str, float]:
    by_length: dict[int, dict[str, FloatArray]] = {}
    for name, array in means.items():
        known = array[~np.isnan(array)]  # a ratio has no value in a resample without anything to divide by
        if len(known) >= ENOUGH * len(array):
            by_length.setdefault(len(known), {})[name] = known
    intervals: dict[str, float] = {}
    for alike in by_length.values():
        for name, *ends in zip(alike, *percentile_intervals(np.stack(list(alike.values()))), strict=True):
            intervals[f"{name}_low"], intervals[f"{name}_high"] = map(float, ends)
    return intervals


def join_reasons(gaps: Sequence[str]) -> str | None:
    """Joins reasons in one line, each once."""
    return "; ".join(dict.fromkeys(gaps)) or None
