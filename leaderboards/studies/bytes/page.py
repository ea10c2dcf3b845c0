"""Puts together the page on equal bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import METRICS
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Frame
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.marks import Dots, Mark, PolicyLine
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.bytes.frontier import (
    BOTH,
    EVICTION,
    QUANTISATION,
    TARGETS,
    FrontierPoint,
    front,
    near,
    points_of,
)
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.treatments.measured import MeasuredTask, facts_of, measured_tasks, policies_in
from leaderboards.studies.treatments.parts import in_percent, in_points, is_clear
from policies.declaration.levels import RATIO, Level

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
