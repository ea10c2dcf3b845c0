"""Compares eviction, fewer bits, and both at equal bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import METRICS
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Dots, Frame, PolicyLine
from leaderboards.rendering.style import named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.parts import in_percent
from leaderboards.studies.treatments.measured import MeasuredTask
from policies.composition import built_in, is_treatment
from policies.declaration.levels import Level
from policies.declaration.names import CONTROLS, FULL, plain_and_way
from policies.quantisation.registry import KINDS as FORMATS
from policies.treatments.options import is_one_of

FAMILIES = EVICTION, QUANTISATION, BOTH = "eviction", "quantisation", "both"
AXIS = "bytes held, percent of the full cache"


@dataclass(frozen=True)
class FrontierPoint:
    policy: str
    family: str
    level: Level
    held: float  # bytes, in percent of the full cache's
    score: FloatArray  # what leads the task, as a share of its highest value, shape (1 + resamples,)

    @property
    def place(self) -> tuple[float, float]:
        return self.held, float(100 * self.score[0])


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


def has_families(policies: Sequence[str]) -> bool:
    """Tells whether something is evicted, something stored in fewer bits, and something both."""
    return set(FAMILIES) <= {family_of(policy) for policy in policies}


def points_of(task: MeasuredTask, policies: Sequence[str]) -> list[FrontierPoint]:
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
        if (family := family_of(policy))
        for level in task.levels(policy)
    ]


def front(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Returns the Pareto front: the highest score at each byte count, by bytes; of equal ones the first."""
    found: list[FrontierPoint] = []
    for point in sorted(points, key=lambda one: (one.held, -one.score[0])):
        if not found or point.score[0] > found[-1].score[0]:
            found.append(point)
    return found


def equal_bytes(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> list[StudySection]:
    """Shows the front of each family; nothing where one has no policy."""
    if not has_families(policies):
        return []
    styles = named_styles(FAMILIES)
    pictures, fronts = [], []
    frame = Frame(Axis.up_to(AXIS, 100), Axis.up_to("", 100), corner="↖ better")
    columns = ("on the front", "way", "bytes, percent", "score, percent")
    for task in tasks:
        points = points_of(task, policies)
        marks: list[Dots | PolicyLine] = []
        for family, style in styles.items():
            own = [point for point in points if point.family == family]
            marks.append(Dots(style, tuple(point.place for point in own)))
            marks.append(PolicyLine(style, tuple(point.place for point in front(own))))
        drawing = Drawing(frame, tuple(marks), f"{task.title} over {AXIS}: {task.name}", f"bytes/{task.name}")
        pictures.append(Picture(task.name, f"{task.title}, percent", drawing.svg()))
        rows = tuple(
            (
                f"{one.policy} at {one.level}" if one.level.amount else one.policy,
                *(one.family, f"{one.held:.1f}", in_percent(task.estimate(one.score))),
            )
            for one in front(points)
        )
        fronts.append(Listing(f"The front of all, {task.name}", columns, rows))
    return [
        StudySection(
            "front",
            "Answers over bytes",
            "A dot for each policy and level, by the bytes that keys and values take. The line of a family is its "
            "Pareto front.",
            tuple(styles.values()),
            tuple(pictures),
            tuple(fronts),
        )
    ]


def bytes_sheet(tasks: Sequence[MeasuredTask], policies: Sequence[str]) -> Sheet:
    rows = []
    for task in tasks if has_families(policies) else ():
        points = points_of(task, policies)
        best = {id(point) for point in front(points)}
        rows += [
            {
                "task": task.name,
                "policy": point.policy,
                "way": point.family,
                "level": point.level.value,
                "held_percent": point.held,
                "share_kept": task.kept(point.policy, point.level),
                "on_front": id(point) in best,
            }
            for point in points
        ]
    return Sheet.of("treatments-bytes", "Answers over bytes", rows)
