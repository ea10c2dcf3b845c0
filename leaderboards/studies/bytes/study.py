"""The study of bytes: what is kept at equal bytes by eviction, by fewer bits, and by both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import METRICS
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Frame
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.marks import Dots, Mark, PolicyLine
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.treatments.definitions import TREATMENTS
from leaderboards.studies.treatments.measured import MeasuredTask, facts_of, measured_tasks, policies_in
from leaderboards.studies.treatments.parts import in_percent, in_points, is_clear
from policies.composition import built_in, is_treatment
from policies.declaration.levels import RATIO, Level
from policies.declaration.names import CONTROLS, FULL, plain_and_way
from policies.quantisation.registry import KINDS as FORMATS
from policies.treatments.options import is_one_of

EVICTION, QUANTISATION, BOTH = "eviction", "quantisation", "both"
TARGETS = (50.0, 25.0, 12.5, 6.25)  # percent of the bytes of the full cache
NEAR = 0.2  # of a target: points so near to it are compared


@dataclass(frozen=True)
class FrontierPoint:
    """A policy at a level."""

    policy: str
    family: str
    level: float
    held: float  # bytes, in percent of the full cache's
    score: FloatArray  # what leads the task, shape (1 + resamples,)


def family_of(policy: str) -> str:
    """Tells what a policy does to the full cache; empty for controls, faults, wrappers and what is not known."""
    plain, way = plain_and_way(policy)
    if policy in CONTROLS:
        return ""
    if is_one_of(policy, FORMATS):
        return QUANTISATION
    if is_one_of(way, FORMATS) and family_of(plain) == EVICTION:
        return BOTH
    known = built_in(policy)
    return EVICTION if known and not is_treatment(policy) and policy == plain and known.frees else ""


def points_of(task: MeasuredTask, policies: Sequence[str]) -> list[FrontierPoint]:
    """Returns the points of all policies that have a family."""
    full = task.evidence.mean(FULL, None, "kv_bytes")[0]
    return [
        FrontierPoint(
            policy,
            family,
            level,
            float(100 * task.evidence.mean(policy, level, "kv_bytes")[0] / full),
            task.evidence.mean(policy, level, task.column),
        )
        for policy in policies
        if (family := family_of(policy))
        for level in task.levels(policy)
    ]


def front(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Returns the points than which none keeps more in as few bytes, by bytes; of equal ones the first."""
    found: list[FrontierPoint] = []
    for point in sorted(points, key=lambda one: (one.held, -one.score[0])):
        if not found or point.score[0] > found[-1].score[0]:
            found.append(point)
    return found


def near(points: Sequence[FrontierPoint], target: float) -> list[FrontierPoint]:
    """Returns the points whose bytes are about a target, the best first."""
    close = [point for point in points if abs(point.held - target) <= NEAR * target]
    return sorted(close, key=lambda point: -float(np.round(point.score[0], 9)))


FAMILIES = (EVICTION, QUANTISATION, BOTH)
WHOLE = 100.0
AXIS = "bytes held, percent of the full cache"
FEWER = {QUANTISATION: "quantisation alone", BOTH: "eviction with quantisation"}
WRAPPERS = ("pages16", "shared", "ends")


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, its downloads, and the numbers that are worth quoting."""
    tasks, unknown = measured_tasks(given.records)
    policies = policies_in(given.records)
    points = {task.name: points_of(task, policies) for task in tasks}
    found = [_plane(tasks, points), _at_targets(tasks, points), _loss_by_deployment(tasks, policies)]
    return StudyContent(
        parts=[part for part in found if part.pictures or part.listings],
        facts=[
            *facts_of(tasks, unknown, given.records),
            ("Numbers", ", ".join(dict.fromkeys(run["identity"]["dtype"] for run in given.runs)) or "not known"),
        ],
        sheets=_sheets(tasks, points),
        quoted={"fronts": {name: [_numbers(point) for point in front(own)] for name, own in points.items()}},
    )


def _factor(task: MeasuredTask) -> float:
    """Returns by what a score is multiplied to be in percent."""
    return WHOLE / (METRICS[task.column].bounds or (0, 1))[1]


def _plane(tasks: Sequence[MeasuredTask], points: Mapping[str, Sequence[FrontierPoint]]) -> StudySection:
    """Draws all points over their bytes, with the front of each family."""
    styles = named_styles(FAMILIES)
    pictures, listings = [], []
    for task in tasks:
        marks: list[Mark] = []
        for family in FAMILIES:
            own = [point for point in points[task.name] if point.family == family]
            marks.append(Dots(styles[family], tuple(_place(task, point) for point in own)))
            marks.append(PolicyLine(styles[family], tuple(_place(task, point) for point in front(own))))
        frame = Frame(Axis.up_to(AXIS, WHOLE), Axis.up_to("", WHOLE), corner="↖ better")
        title = f"{task.title} over {AXIS}: {task.name}"
        drawing = Drawing(frame, tuple(marks), title, f"bytes/{task.name}")
        pictures.append(Picture(task.name, f"{task.title}, percent", Markup(drawing.svg())))
        listings.append(_front(task, points[task.name]))
    text = (
        "A dot for each policy and level, by the bytes that keys and values take with codes, scales and zero points; "
        "the line of a family joins those of its dots than which none of it keeps more in as few bytes. The best of "
        "many dots is in part luck: intervals are in the table."
    )
    return StudySection("front", "Answers over bytes", text, tuple(styles.values()), tuple(pictures), tuple(listings))


def _place(task: MeasuredTask, point: FrontierPoint) -> tuple[float, float]:
    return point.held, float(_factor(task) * point.score[0])


def _score(task: MeasuredTask, point: FrontierPoint) -> Estimate:
    return task.estimate(point.score * _factor(task) / WHOLE)


def _name(point: FrontierPoint) -> str:
    return point.policy if not point.level else f"{point.policy} at {Level(RATIO.name, point.level)}"


def _front(task: MeasuredTask, points: Sequence[FrontierPoint]) -> Listing:
    rows = tuple(
        (_name(point), point.family, f"{point.held:.1f}", in_percent(_score(task, point))) for point in front(points)
    )
    return Listing(f"The front of all, {task.name}", ("on the front", "way", "bytes, percent", "score, percent"), rows)


def _at_targets(tasks: Sequence[MeasuredTask], points: Mapping[str, Sequence[FrontierPoint]]) -> StudySection:
    """Sets the best of each family at about equal bytes against the best eviction."""
    listings, told = [], []
    for task in tasks:
        rows, words = [], []
        for target in TARGETS:
            best = {
                family: next(iter(near([point for point in points[task.name] if point.family == family], target)), None)
                for family in FAMILIES
            }
            evicted = best[EVICTION]
            words.append(_winner(task, target, [point for point in best.values() if point is not None], evicted))
            for family, point in best.items():
                if point is None:
                    rows.append((f"{target:g} %, {family}", "none is near", "–", "–", "–"))
                    continue
                against = "–"
                if evicted is not None and family != EVICTION:
                    difference = (point.score - evicted.score) * _factor(task) / WHOLE
                    against = in_points(task.estimate(difference))
                rows.append(
                    (
                        f"{target:g} %, {family}",
                        _name(point),
                        f"{point.held:.1f}",
                        in_percent(_score(task, point)),
                        against,
                    )
                )
        told.append(f"{task.name}: {', '.join(filter(None, words))}." if any(words) else "")
        columns = ("at bytes, way", "best", "bytes, percent", "score, percent", "against eviction, points")
        listings.append(Listing(f"The best at about equal bytes, {task.name}", columns, tuple(rows)))
    text = " ".join(filter(None, told)) + (
        " Of each family the policy that scores most among those within a fifth of the bytes that are aimed at. "
        "Differences are paired by question; that each is the best of several is not in their intervals."
    )
    return StudySection("targets", "At equal bytes", text.strip(), listings=tuple(listings))


def _winner(task: MeasuredTask, target: float, best: Sequence[FrontierPoint], evicted: FrontierPoint | None) -> str:
    """Tells which family scores most at about some bytes, and by how much it is above eviction alone; nothing where
    there is nothing to compare."""
    if evicted is None or len(best) < 2:
        return ""
    first = max(best, key=lambda point: point.score[0])
    if first is evicted:
        return f"at {target:g} % of the bytes eviction alone scores most"
    difference = task.estimate((first.score - evicted.score) * _factor(task) / WHOLE)
    verdict = "" if is_clear(difference) else ", which may be chance"
    return (
        f"at {target:g} % of the bytes {FEWER[first.family]} scores most, {in_points(difference)} points against "
        f"eviction alone{verdict}"
    )


def _loss_by_deployment(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> StudySection:
    """Lists what each policy loses where only whole pages, or the same tokens in all heads, can be freed."""
    listings = []
    for task in tasks:
        plain = [one for one in policies if any(f"{one}+{way}" in policies for way in WRAPPERS)]
        levels = sorted({level for one in plain for level in task.levels(one) if level})
        rows = []
        for one in plain:
            rows.append((one, *(in_percent(task.estimate(task.share_kept(one, level))) for level in levels)))
            for way in (way for way in WRAPPERS if f"{one}+{way}" in policies):
                wrapped = f"{one}+{way}"
                there = set(task.levels(wrapped))
                cells = [
                    in_points(task.estimate(task.share_kept(wrapped, level) - task.share_kept(one, level)))
                    if level in there
                    else "–"
                    for level in levels
                ]
                rows.append((wrapped, *cells))
        title = f"Share kept, percent, and what as deployed adds to it, points: {task.name}"
        listings.append(Listing(title, ("as deployed", *(str(Level(RATIO.name, one)) for one in levels)), tuple(rows)))
    text = (
        "An engine frees pages, not tokens of single heads. +pages16 keeps or frees whole pages of 16 tokens, +shared "
        "keeps the same tokens in all heads of a layer, +ends keeps the first and the last tenth: at equal ratios, "
        "paired by question."
    )
    return StudySection(
        "deployed", "What an engine can free", text, listings=tuple(one for one in listings if one.rows)
    )


def _sheets(tasks: Sequence[MeasuredTask], points: Mapping[str, Sequence[FrontierPoint]]) -> list[Sheet]:
    rows = [
        {
            "task": task.name,
            "policy": point.policy,
            "way": point.family,
            "level": point.level,
            "held_percent": point.held,
            "share_kept": task.estimate(task.share_kept(point.policy, point.level)),
            "on_front": any(point is one for one in front(points[task.name])),
        }
        for task in tasks
        for point in points[task.name]
    ]
    return [Sheet.of("bytes-points", "Answers over bytes", rows)] if rows else []


def _numbers(point: FrontierPoint) -> dict[str, Any]:
    return {
        "policy": point.policy,
        "level": point.level,
        "held_percent": point.held,
        "score": float(point.score[0]),
    }


def _takes(given: StudyInput) -> bool:
    """Takes runs in which something is evicted, something stored in fewer bits, and something both."""
    policies = policies_in(given.records)
    return FULL in policies and {EVICTION, QUANTISATION, BOTH} <= {family_of(policy) for policy in policies}


STUDY = Study(
    name="bytes",
    title="Equal bytes",
    lead="The same memory can hold few tokens in full, all of them in few bits, or some in some. Which keeps most, and "
    "what is left of it where an engine frees whole pages?",
    takes=_takes,
    find=content_of,
    chapter=TREATMENTS,
)
