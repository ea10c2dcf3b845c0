"""The study of faults: what a damaged cache breaks, by kind, share, layers and tokens."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import SHARE, Axis, Frame
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.marks import Band
from leaderboards.rendering.style import named_styles, policy_styles
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.faults.places import aims, bands, figures_of_text, tensors
from leaderboards.studies.treatments.damage import Damage, damages
from leaderboards.studies.treatments.definitions import TREATMENTS
from leaderboards.studies.treatments.measured import (
    OUTCOMES,
    MeasuredTask,
    facts_of,
    kept_cells,
    measured_tasks,
    policies_in,
)
from leaderboards.studies.treatments.parts import curves, half_lost_from, in_percent, in_points, is_clear
from policies.declaration.levels import KINDS, RATE, Level
from policies.declaration.names import FULL

SHOWN_OUTCOMES = {"masked": "masked", "corrupted": "corrupted", "due": "DUE"}
SOLID = 0.55  # opacity
BITS_AND_ROWS = (
    " Faults are compared by the share of numbers that they change: of bits a rate hits far more numbers than of rows."
)


def without_aim(faults: Sequence[Damage]) -> list[Damage]:
    """Returns the faults that may hit any row of any layer."""
    return [fault for fault in faults if not fault.restricted]


def areas(task: MeasuredTask, faults: Sequence[Damage], dtype: str) -> list[tuple[Damage, FloatArray]]:
    """Returns the mean height of the curve of each fault that was run at the rates of the most, over the share of
    numbers that it changes, as far as all of them reach; the least harmful first. At one rate a fault of bits changes
    far more numbers than one of rows."""
    rates = [task.levels(fault.policy) for fault in faults]
    usual = max(rates, key=len, default=())
    compared = [fault for fault, levels in zip(faults, rates, strict=True) if levels == usual]
    end = min((fault.changed(usual[-1], dtype) for fault in compared), default=0.0)
    found = [(fault, _height(task, fault, dtype, end)) for fault in compared]
    return sorted(found, key=lambda pair: -pair[1][0])


def _height(task: MeasuredTask, fault: Damage, dtype: str, end: float) -> FloatArray:
    """Returns the mean height of the curve of a fault from the clean cache to a share of numbers changed."""
    levels = [level for level in task.levels(fault.policy) if level]
    places = np.array([0.0, *(fault.changed(level, dtype) for level in levels)])
    clean = task.clean / task.clean
    heights = np.stack([clean, *(task.share_kept(fault.policy, level) for level in levels)])
    inside = places < end
    beyond = int(inside.sum())
    share = (end - places[beyond - 1]) / (places[beyond] - places[beyond - 1])
    last = heights[beyond - 1] + share * (heights[beyond] - heights[beyond - 1])
    places, heights = np.append(places[inside], end), np.concatenate([heights[inside], last[None]])
    area: FloatArray = (np.diff(places)[:, None] * (heights[1:] + heights[:-1]) / 2).sum(axis=0) / end
    return area


def kinds(tasks: Sequence[MeasuredTask], faults: Sequence[Damage], dtype: str) -> list[StudySection]:
    """Draws what is kept over the share of numbers changed by kind, and tells in which order the kinds hurt."""
    everywhere = without_aim(faults)
    of_policy = {fault.policy: fault for fault in everywhere}
    compared = {fault.policy for task in tasks for fault, _ in areas(task, everywhere, dtype)}
    styles = policy_styles([fault.policy for fault in everywhere if fault.policy in compared])
    if not styles or not tasks:
        return []
    over = ("share of numbers changed", lambda policy, rate: of_policy[policy].changed(rate, dtype))
    of_bits = any(fault.options.unit == "bit" for fault in everywhere)
    return [
        StudySection(
            "kinds",
            "Which faults hurt most",
            " ".join(_headline(task, everywhere, dtype) for task in tasks) + " Rows of all layers and heads are hit, "
            "each with the asked probability; bands are 95 % intervals over contexts."
            + (BITS_AND_ROWS if of_bits else ""),
            tuple(styles.values()),
            tuple(curves(task, styles, RATE.name, task.name, f"kinds/{task.name}", over=over) for task in tasks),
            tuple(_table(task, everywhere, dtype) for task in tasks),
            tuple(_order(task, everywhere, dtype) for task in tasks),
        )
    ]


def _headline(task: MeasuredTask, faults: Sequence[Damage], dtype: str) -> str:
    ordered = areas(task, faults, dtype)
    (highest, most), (lowest, least) = ordered[0], ordered[-1]
    if len(ordered) < 2:
        return f"{task.name}: {highest.policy} keeps {100 * most[0]:.0f} % on average over its rates."
    difference = task.estimate(most - least)
    clear = "" if is_clear(difference) else ", which may be chance"
    return (
        f"{task.name}: where as many numbers are changed, {lowest.policy} hurts most and {highest.policy} least; their "
        f"areas differ by {100 * difference.mean:z.0f} points{clear}."
    )


def _table(task: MeasuredTask, faults: Sequence[Damage], dtype: str) -> Listing:
    ordered = areas(task, faults, dtype)
    levels = task.levels(ordered[0][0].policy)
    rows = tuple(
        (
            fault.policy,
            in_percent(task.estimate(area)),
            "–" if (half := half_lost_from(task, fault.policy)) is None else f"{100 * fault.changed(half, dtype):.3g}",
            *(_kept_at(task, fault, level, dtype) for level in levels),
        )
        for fault, area in ordered
    )
    columns = ("fault", "area over numbers changed", "half lost from", *(f"rate {level:g}" for level in levels))
    return Listing(f"Share kept, {task.name}, percent", columns, rows)


def _kept_at(task: MeasuredTask, fault: Damage, rate: float, dtype: str) -> str:
    """Writes what is kept at a rate, and how many numbers that is where it is another share."""
    changed = fault.changed(rate, dtype)
    numbers = "" if changed == rate else f", {100 * changed:.3g} % of numbers"
    return f"{in_percent(task.estimate(task.share_kept(fault.policy, rate)))}{numbers}"


def _order(task: MeasuredTask, faults: Sequence[Damage], dtype: str) -> Listing:
    rows = []
    for (one, upper), (other, lower) in pairwise(areas(task, faults, dtype)):
        difference = task.estimate(upper - lower)
        clear = "yes" if is_clear(difference) else "no"
        rows.append((f"{one.policy} above {other.policy}", in_points(difference), clear))
    columns = ("pair", "difference of areas", "order is clear")
    return Listing(f"The order of the faults, {task.name}, points", columns, tuple(rows))


def outcomes(tasks: Sequence[MeasuredTask], faults: Sequence[Damage]) -> list[StudySection]:
    """Draws for each kind how its answers end, one outcome above the other."""
    tasks = [task for task in tasks if task.has_outcomes]
    everywhere = [fault for fault in without_aim(faults) if tasks and len(tasks[0].levels(fault.policy)) > 1]
    if not everywhere:
        return []
    styles = named_styles(tuple(SHOWN_OUTCOMES.values()))
    pictures = []
    for task in tasks:
        for fault in everywhere:
            levels = task.levels(fault.policy)
            shares = [task.outcomes(fault.policy, level) for level in levels]
            bottom, marks = [0.0] * len(levels), []
            for name in OUTCOMES:
                top = [low + by_outcome[name] for low, by_outcome in zip(bottom, shares, strict=True)]
                marks.append(Band.between(styles[SHOWN_OUTCOMES[name]], levels, tuple(bottom), tuple(top), SOLID))
                bottom = top
            frame = Frame(Axis.over([Level(RATE.name, level) for level in levels]), Axis.around("", SHARE))
            title = f"{fault.policy}, {task.name}"
            drawing = Drawing(frame, tuple(marks), f"Outcomes over the asked rate: {title}", f"outcomes/{title}")
            pictures.append(Picture(title, "share of answers", Markup(drawing.svg())))
    return [
        StudySection(
            "outcomes",
            "How answers end",
            "Against the full cache’s own answer, right or wrong: masked is the same answer, corrupted another one, "
            "DUE one with infinity or NaN, or without an end. Answers that failed are in none of them.",
            tuple(styles.values()),
            tuple(pictures),
        )
    ]


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, its downloads, and the numbers that are worth quoting."""
    tasks, unknown = measured_tasks(given.records)
    faults = damages(policies_in(given.records))
    dtype = next((run["identity"]["dtype"] for run in given.runs if "identity" in run), "float32")
    parts = kinds(tasks, faults, dtype)
    parts += [part for find in (bands, aims, tensors, outcomes, figures_of_text) for part in find(tasks, faults)]
    return StudyContent(
        parts=parts,
        facts=[("Faults", str(len(faults))), *facts_of(tasks, unknown, given.records)],
        sheets=_sheets(tasks, faults, dtype),
        quoted=_numbers_to_quote(tasks, faults, dtype),
    )


def _sheets(tasks: list[MeasuredTask], faults: list[Damage], dtype: str) -> list[Sheet]:
    cells = kept_cells(tasks, [fault.policy for fault in faults])
    of_kinds = [
        {"task": task.name, "policy": fault.policy, "area_over_changed": task.estimate(values)}
        for task in tasks
        for fault, values in areas(task, without_aim(faults), dtype)
    ]
    sheets = (
        Sheet.of("faults-kept", "What is kept with each fault", cells, ("task", "policy", "level", *OUTCOMES)),
        Sheet.of("faults-areas", "Areas of faults over the share of numbers changed", of_kinds, ("task", "policy")),
    )
    return [sheet for sheet in sheets if sheet.rows]


def _numbers_to_quote(tasks: list[MeasuredTask], faults: list[Damage], dtype: str) -> dict[str, Any]:
    return {
        "areas": [
            {"task": task.name, "policy": fault.policy, **_numbers(task.estimate(values))}
            for task in tasks
            for fault, values in areas(task, without_aim(faults), dtype)
        ]
    }


def _numbers(estimate: Estimate) -> dict[str, float | None]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}


def _takes(given: StudyInput) -> bool:
    """Takes runs with the full cache and a fault at two rates or more, 0 aside."""
    policies = policies_in(given.records)
    of_faults = given.records["level_kind"].isin([kind.name for kind in KINDS.values() if kind.hit_share])
    rates = given.records[of_faults & (given.records["level"] > 0)].groupby("policy", observed=True)["level"].nunique()
    return FULL in policies and any(rates.get(damage.policy, 0) > 1 for damage in damages(policies))


STUDY = Study(
    name="faults",
    title="Faults of the cache",
    lead="Rows of the cache hold noise, nothing, or what belongs to somebody else. How much of that does an answer "
    "survive, in which layers, and in which tokens?",
    takes=_takes,
    find=content_of,
    chapter=TREATMENTS,
)
