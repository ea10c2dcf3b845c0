"""Compares eviction, fewer bits and both at equal bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.row import DELTA_NLL
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import METRICS
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Dots, Frame, PolicyLine
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.parts import in_numbers, in_percent
from leaderboards.studies.treatments.tasks import RISE, MeasuredTask
from policies.composition import built_in, is_treatment
from policies.declaration.levels import Level
from policies.declaration.names import CONTROLS, FULL, plain_and_way
from policies.quantisation.registry import KINDS as FORMATS
from policies.treatments.options import is_one_of

FAMILIES = EVICTION, QUANTISATION, BOTH = "eviction", "quantisation", "both"
AXIS = "bytes held, percent of the full cache"
NO_FRONT = "; where the model cannot do the task there is none"


@dataclass(frozen=True)
class FrontierPoint:
    policy: str
    family: str
    level: Level
    held: float  # bytes, in percent of the full cache's
    score: (
        FloatArray  # what leads the task, as a share of its highest value, shape (1 + resamples,)
    )

    @property
    def place(self) -> tuple[float, float]:
        return self.held, float(100 * self.score[0])


def family_name(policy: str) -> str:
    """Tells what a policy does to the full cache; empty for controls, faults, wrappers and what is not known."""
    plain, way = plain_and_way(policy)
    if policy in CONTROLS:
        return ""
    if is_one_of(policy, FORMATS):
        return QUANTISATION
    if is_one_of(way, FORMATS) and family_name(plain) == EVICTION:
        return BOTH
    known = built_in(policy)
    return (
        EVICTION if known and not is_treatment(policy) and policy == plain and known.frees else ""
    )


def has_families(policies: Sequence[str]) -> bool:
    """Tells whether something is evicted, something stored in fewer bits, and something both."""
    return set(FAMILIES) <= {family_name(policy) for policy in policies}


def frontier_points(task: MeasuredTask, policies: Sequence[str]) -> list[FrontierPoint]:
    full = task.evidence.mean(FULL, None, "kv_bytes")[0]
    highest = (METRICS[task.column].bounds or (0, 1))[1]
    return [
        FrontierPoint(
            policy,
            family,
            level,
            float(100 * task.evidence.mean(policy, level.value, "kv_bytes")[0] / full),
            task.evidence.mean(policy, level.value, task.column) / highest,
        )
        for policy in policies
        if (family := family_name(policy))
        for level in task.evidence.levels(policy)
    ]


def front(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Returns the Pareto front: the highest score at each byte count, by bytes; of equal ones the first."""
    found: list[FrontierPoint] = []
    for point in sorted(points, key=lambda one: (one.held, -one.score[0])):
        if not found or point.score[0] > found[-1].score[0]:
            found.append(point)
    return found


def equal_bytes(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> list[StudySection]:
    """Shows the front of each family, and where the model cannot do the task each point instead; nothing where one
    family has no policy."""
    if not has_families(policies):
        return []
    styles = named_styles(FAMILIES)
    pictures, listings = list[Picture](), list[Listing]()
    for task in tasks:
        points = frontier_points(task, policies)
        if task.shows_rise:
            pictures.append(_rise_over_bytes(task, points, styles))
        pictures.append(_score_over_bytes(task, points, styles))
        listings.append(
            _every_point(task, points) if task.withheld else _front_of_all(task, points)
        )
    return [
        StudySection(
            "front",
            "Answers over bytes",
            "A dot for each policy and level, by the bytes that keys and values take. The line of a family is its "
            f"Pareto front{NO_FRONT if any(task.withheld for task in tasks) else ''}.",
            tuple(styles.values()),
            tuple(pictures),
            tuple(listings),
        )
    ]


def _score_over_bytes(
    task: MeasuredTask, points: Sequence[FrontierPoint], styles: Mapping[str, LineStyle]
) -> Picture:
    marks: list[Dots | PolicyLine] = []
    for family, style in styles.items():
        members = [point for point in points if point.family == family]
        marks.append(Dots(style, tuple(point.place for point in members)))
        if not task.withheld:  # a front puts policies in order
            marks.append(PolicyLine(style, tuple(point.place for point in front(members))))
    frame = Frame(Axis.up_to(AXIS, 100), Axis.up_to("", 100), corner="↖ better")
    drawing = Drawing(
        frame, tuple(marks), f"{task.title} over {AXIS}: {task.name}", f"bytes/{task.name}"
    )
    return Picture(task.label, f"{task.title}, percent", drawing)


def _rise_over_bytes(
    task: MeasuredTask, points: Sequence[FrontierPoint], styles: Mapping[str, LineStyle]
) -> Picture:
    rises = {
        id(point): rise.mean
        for point in points
        if (rise := task.rise(point.policy, point.level)) is not None
    }
    marks = []
    for family, style in styles.items():
        members = [point for point in points if point.family == family and id(point) in rises]
        marks.append(Dots(style, tuple((point.held, rises[id(point)]) for point in members)))
    frame = Frame(
        Axis.up_to(AXIS, 100), Axis.from_values("", list(rises.values())), corner="↙ better"
    )
    title = f"{DELTA_NLL.title} over {AXIS}: {task.name}"
    drawing = Drawing(frame, tuple(marks), title, f"rise/{task.name}")
    return Picture(task.label, f"{DELTA_NLL.title}, {DELTA_NLL.unit}", drawing)


def _front_of_all(task: MeasuredTask, points: Sequence[FrontierPoint]) -> Listing:
    columns = ("on the front", "way", "bytes, percent", "score, percent")
    rows = [(*_words_of(one), in_percent(task.estimate(one.score))) for one in front(points)]
    return Listing(f"The front of all, {task.name}", columns, tuple(rows))


def _every_point(task: MeasuredTask, points: Sequence[FrontierPoint]) -> Listing:
    rows = []
    for one in sorted(points, key=lambda point: point.held):
        rise = (in_numbers(task.rise(one.policy, one.level)),) if task.shows_rise else ()
        rows.append((*_words_of(one), *rise, in_percent(task.estimate(one.score))))
    rises = ("NLL rise, nats",) if task.shows_rise else ()
    columns = ("policy", "way", "bytes, percent", *rises, "score, percent")
    return Listing(f"Every policy and level by bytes, {task.label}", columns, tuple(rows))


def _words_of(point: FrontierPoint) -> tuple[str, str, str]:
    name = f"{point.policy} at {point.level}" if point.level.amount else point.policy
    return name, point.family, f"{point.held:.1f}"


def bytes_sheet(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> Sheet:
    rows = []
    for task in tasks if has_families(policies) else ():
        points = frontier_points(task, policies)
        best = {id(point) for point in front(points)}
        rows += [
            {
                "task": task.name,
                "policy": point.policy,
                "way": point.family,
                "level": point.level.value,
                "held_percent": point.held,
                "share_kept": task.kept(point.policy, point.level),
                "on_front": None if task.withheld else id(point) in best,
                RISE: task.rise(point.policy, point.level),
                "not_mastered": task.withheld or None,
            }
            for point in points
        ]
    return Sheet.of("treatments-bytes", "Answers over bytes", rows)
