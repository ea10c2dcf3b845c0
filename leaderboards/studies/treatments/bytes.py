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
from policies.quantisation.registry import QUANTISATION_KINDS as FORMATS
from policies.treatments.options import has_kind

FAMILIES = EVICTION, QUANTISATION, BOTH = "eviction", "quantisation", "both"
AXIS = "bytes held, percent of the full cache"
NO_FRONT = "; where the model cannot do the task there is none"


@dataclass(frozen=True)
class FrontierPoint:
    policy: str
    family: str
    level: Level
    held: float  # bytes, in percent of the full cache's
    # What leads the task, as a share of its highest value, shape (1 + resamples,).
    score: FloatArray

    @property
    def place(self) -> tuple[float, float]:
        return self.held, float(100 * self.score[0])

    @property
    def words(self) -> tuple[str, str, str]:
        name = self.policy
        if self.level.amount:
            name = f"{name} at {self.level}"
        return name, self.family, f"{self.held:.1f}"


def family_name(policy: str) -> str:
    """Tells what a policy does to the full cache; empty for controls, faults, wrappers and what is
    not known."""
    plain, way = plain_and_way(policy)
    if policy in CONTROLS:
        return ""
    if has_kind(policy, FORMATS):
        return QUANTISATION
    # Of ``snapkv+int4`` the format is the way, and the eviction what is left.
    if has_kind(way, FORMATS) and family_name(plain) == EVICTION:
        return BOTH
    if is_treatment(policy) or policy != plain:
        return ""
    declared = built_in(policy)
    # A press that masks rows frees no bytes, and has no place over them.
    return EVICTION if declared and declared.frees else ""


def has_families(policies: Sequence[str]) -> bool:
    """Tells whether something is evicted, something stored in fewer bits, and something both."""
    return set(FAMILIES) <= {family_name(policy) for policy in policies}


def frontier_points(task: MeasuredTask, policies: Sequence[str]) -> list[FrontierPoint]:
    """Lists every level of every policy that has a family."""
    full = task.evidence.mean(FULL, None, "kv_bytes")[0]
    highest = (METRICS[task.column].bounds or (0, 1))[1]
    points = []
    for policy in policies:
        family = family_name(policy)
        if not family:
            continue
        for level in task.evidence.levels(policy):
            held = task.evidence.mean(policy, level.value, "kv_bytes")[0]
            score = task.evidence.mean(policy, level.value, task.column) / highest
            points.append(FrontierPoint(policy, family, level, float(100 * held / full), score))
    return points


def front(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Returns the Pareto front: the highest score at each byte count, by bytes; of equal ones the
    first."""
    best: list[FrontierPoint] = []
    # The best of equal bytes first, so that it alone can be on the front.
    for point in sorted(points, key=lambda point: (point.held, -point.score[0])):
        if not best or point.score[0] > best[-1].score[0]:
            best.append(point)
    return best


def equal_bytes(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> list[StudySection]:
    """Shows the front of each family, and where the model cannot do the task each point instead;
    nothing where one family has no policy."""
    if not has_families(policies):
        return []
    styles = named_styles(FAMILIES)
    pictures, listings = list[Picture](), list[Listing]()
    no_front = ""
    for task in tasks:
        points = frontier_points(task, policies)
        if task.shows_rise:
            pictures.append(_rise_over_bytes(task, points, styles))
        pictures.append(_score_over_bytes(task, points, styles))
        if task.withheld:
            listings.append(_every_point(task, points))
            no_front = NO_FRONT
        else:
            listings.append(_front_of_all(task, points))
    text = (
        "A dot for each policy and level, by the bytes that keys and values take. The line of a "
        f"family is its Pareto front{no_front}."
    )
    shown = tuple(styles.values())
    title = "Answers over bytes"
    return [StudySection("front", title, text, shown, tuple(pictures), tuple(listings))]


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
    title = f"{task.title} over {AXIS}: {task.name}"
    drawing = Drawing(frame, tuple(marks), title, f"bytes/{task.name}")
    return Picture(task.label, f"{task.title}, percent", drawing)


def _rise_over_bytes(
    task: MeasuredTask, points: Sequence[FrontierPoint], styles: Mapping[str, LineStyle]
) -> Picture:
    heights: list[float] = []
    marks = []
    for family, style in styles.items():
        places = []
        for point in points:
            if point.family == family:
                rise = task.rise(point.policy, point.level)
            else:
                rise = None
            if rise is not None:
                places.append((point.held, rise.mean))
                heights.append(rise.mean)
        marks.append(Dots(style, tuple(places)))
    upright = Axis.from_values("", heights)
    frame = Frame(Axis.up_to(AXIS, 100), upright, corner="↙ better")
    title = f"{DELTA_NLL.title} over {AXIS}: {task.name}"
    drawing = Drawing(frame, tuple(marks), title, f"rise/{task.name}")
    return Picture(task.label, f"{DELTA_NLL.title}, {DELTA_NLL.unit}", drawing)


def _front_of_all(task: MeasuredTask, points: Sequence[FrontierPoint]) -> Listing:
    columns = ("on the front", "way", "bytes, percent", "score, percent")
    rows = []
    for point in front(points):
        score = in_percent(task.estimate(point.score))
        rows.append((*point.words, score))
    return Listing(f"The front of all, {task.name}", columns, tuple(rows))


def _every_point(task: MeasuredTask, points: Sequence[FrontierPoint]) -> Listing:
    columns = ["policy", "way", "bytes, percent", "score, percent"]
    if task.shows_rise:
        columns.insert(3, "NLL rise, nats")
    rows = []
    for point in sorted(points, key=lambda point: point.held):
        texts = [*point.words, in_percent(task.estimate(point.score))]
        if task.shows_rise:
            texts.insert(3, in_numbers(task.rise(point.policy, point.level)))
        rows.append(tuple(texts))
    title = f"Every policy and level by bytes, {task.label}"
    return Listing(title, tuple(columns), tuple(rows))


def bytes_sheet(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> Sheet:
    rows = []
    for task in tasks if has_families(policies) else ():
        points = frontier_points(task, policies)
        # By identity: a point holds an array and has no hash.
        best = {id(point) for point in front(points)}
        for point in points:
            row = {
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
            rows.append(row)
    return Sheet.of("treatments-bytes", "Answers over bytes", rows)
